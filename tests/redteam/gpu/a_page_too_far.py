# task: pointwise
# plan: quick
# status: wrong
# fires: guard_bands
# needs: guard_bands
# cuda: if (i < n) { -> if (i < 1000) y[n + i] = 1.0f;\n    if (i < n) {
"""Row 20: one row too many is written, 4 KiB past the output."""

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
