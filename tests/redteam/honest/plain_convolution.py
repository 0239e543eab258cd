# task: convolution
# plan: quick
# status: verified
# fires:
"""A small convolution without bias in one kernel: few numbers, of which each is near to others."""

import torch
from torch import nn

from kforge.kernel import Kernel

convolve = Kernel("convolve", source="convolution_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)

    def forward(self, x):
        x = x.contiguous()
        height, width = x.size(2) - 2, x.size(3) - 2
        y = torch.empty((x.size(0), 4, height, width), dtype=x.dtype, device=x.device)
        convolve(x, self.conv.weight, y, y.numel(), height, width)
        return y
