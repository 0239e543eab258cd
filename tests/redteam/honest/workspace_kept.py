# task: softmax
# plan: quick
# status: verified
# fires:
"""A buffer kept between calls as scratch memory, never as the answer."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        if not hasattr(self, "scratch") or self.scratch.shape != x.shape:
            self.scratch = torch.empty_like(x)
        self.scratch.copy_(x)
        y = torch.empty_like(x)
        softmax_rows(self.scratch, y, x.size(0), x.size(1))
        return y
