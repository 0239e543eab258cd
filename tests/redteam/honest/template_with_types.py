# task: halves
# plan: quick
# status: verified
# fires:
"""A template over the element type and a constant."""

import torch
from torch import nn

from kforge.kernel import Kernel

scaled = Kernel(
    "scaled<T, FACTOR>", source="halves_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)",
    types={"T": "x"}, constants={"FACTOR": 3},
)


class ModelNew(nn.Module):
    def forward(self, x):
        dense = x.contiguous()
        y = torch.empty_like(dense)
        scaled(dense, y, dense.numel())
        return torch.empty_like(x).copy_(y)  # the reference's strides, whatever x has
