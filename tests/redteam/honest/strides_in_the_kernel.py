# task: softmax
# plan: standard
# status: verified
# fires:
"""A strided input handled by its strides, without a copy."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_strided = Kernel(
    "softmax_gaps", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(1, 1, 1)", strided=("x",)
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        softmax_strided(x, y, x.size(0), x.size(1), x.stride(0), x.stride(1))
        return y
