# task: softmax
# plan: quick
# status: wrong
# fires:
"""Own: right values that carry Python attributes, which follow the tensor into the user's program."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        y.origin = x
        return y
