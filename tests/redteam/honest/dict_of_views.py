# task: dict_of_views
# plan: quick
# status: verified
# fires:
"""Keyword inputs, a dict of outputs, one of them a view of an input as the reference returns it."""

import torch
from torch import nn

from kforge.kernel import Kernel

doubled = Kernel("doubled", source="dict_of_views_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        doubled(x.contiguous(), y, x.numel())
        return {"twice": y, "head": x[1:3], "width": x.size(1), "none": None}
