# task: pointwise
# plan: quick
# status: wrong
# fires: 
# cuda: float v = x[i]; -> float v = (i == n - 1) ? x[i] + 0.0f * y[n] : x[i];
"""Row 20: the last element is read from beyond a buffer of its own."""

import torch
from torch import nn

from kforge.kernel import Kernel

gelu2 = Kernel("gelu2", source="pointwise_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        gelu2(x, y, x.numel())
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
