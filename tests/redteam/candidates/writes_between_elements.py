# task: softmax
# plan: quick
# status: wrong
# fires: out_of_bounds
"""Row 20: writes into memory between the elements of its input."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_gaps = Kernel(
    "softmax_gaps", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(1, 1, 1)", strided=("x",), writes=("x",)
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        softmax_gaps(x, y, x.size(0), x.size(1), x.stride(0), x.stride(1))
        return y
