# task: affine
# plan: quick
# status: wrong
# fires: default_parameters
"""Row 33: weights folded in the constructor, deaf to load_state_dict."""

import torch
from torch import nn

from kforge.kernel import Kernel

affine = Kernel("affine", source="affine_kforge.cu", grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.kept = (self.scale.detach().clone(), self.shift.detach().clone())

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        affine(x, *self.kept, y, x.numel(), x.size(-1))
        return y
