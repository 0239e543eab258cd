# task: softmax
# plan: quick
# status: verified
# fires:
"""Scratch memory given by the Kernel itself."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel(
    "softmax_scratch", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)", workspace="4 * rows * 64", zeroed=True
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        return y
