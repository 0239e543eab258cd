# task: softmax
# plan: quick
# status: build_failed
# fires:
# call_s: 10
"""Own: forty macros, each of which is the one before twice; that the compiler has no end is the source's failure."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        return y
