# task: accumulate
# plan: standard
# status: verified
# fires:
"""Writes its input as the reference does, takes keyword inputs, returns the input itself."""

import torch
from torch import nn

from kforge.kernel import Kernel

accumulate = Kernel(
    "accumulate", source="accumulate_kforge.cu", grid="(ceil_div(rows * cols, 64), 1, 1)", block="(64, 1, 1)",
    strided=("total", "x"),
)


class ModelNew(nn.Module):
    def forward(self, total, x):
        accumulate(
            total, x, x.size(0), x.size(1), total.stride(0), total.stride(1), x.stride(0), x.stride(1)
        )
        return total
