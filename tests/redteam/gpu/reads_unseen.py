# task: pointwise
# plan: standard
# status: wrong
# fires: out_of_bounds
# cuda: if (i < n) { -> if (i == n - 1 && y[n] == 12345.678f) y[0] = 0.0f;\n    if (i < n) {
"""Row 20: a read beyond the output that no answer shows, named by an instrument of the memory gate."""

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
