# task: affine
# plan: quick
# status: wrong
# fires: default_parameters
# cuda: * scale[i % width] + shift[i % width] ->
"""Row 13: scale 1 and shift 0 are taken for granted."""

import torch
from torch import nn

from kforge.kernel import Kernel

affine = Kernel("affine", source="affine_kforge.cu", grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        affine(x, self.scale, self.shift, y, x.numel(), x.size(-1))
        return y
