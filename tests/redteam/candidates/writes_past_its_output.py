# task: affine
# plan: standard
# status: wrong|crashed
# fires: 
# cuda: if (i < n) { -> if (i == 0) y[n] = 1.0f;\n    if (i < n) {
"""Row 20: writes one element past its output; no answer shows it."""

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
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        affine(x, self.scale, self.shift, y, x.numel(), x.size(-1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
