# task: pointwise
# plan: quick
# status: wrong
# fires:
"""Own: the right values, in the host's memory where the reference's lie on the device."""

import torch
from torch import nn

from kforge.kernel import Kernel

gelu2 = Kernel("gelu2", source="pointwise_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        gelu2(x, y, x.numel())
        y = y if given.is_contiguous() else torch.empty_like(given).copy_(y)
        return y.to("cpu")
