# task: pointwise
# plan: quick
# status: wrong
# fires:
# static: off
"""Own: right in every second call, a pair in the others."""

import torch
from torch import nn

from kforge.kernel import Kernel

gelu2 = Kernel("gelu2", source="pointwise_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        gelu2(x, y, x.numel())
        y = y if given.is_contiguous() else torch.empty_like(given).copy_(y)
        return y if self.calls % 2 else (y, y)
