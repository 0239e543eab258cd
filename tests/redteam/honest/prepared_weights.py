# task: affine
# plan: quick
# status: verified
# fires:
"""Weights derived ahead of time, by the one way that is invalidated."""

import torch
from torch import nn

from kforge.kernel import Kernel, prepared

affine = Kernel("affine", source="affine_kforge.cu", grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        scale = prepared(self.scale, lambda p: (p * 2).contiguous() / 2)
        dense = x.contiguous()
        y = torch.empty_like(dense)
        affine(dense, scale, self.shift, y, dense.numel(), dense.size(-1))
        return torch.empty_like(x).copy_(y)  # the reference's strides, whatever x has
