"""residual + gelu(x + bias) in one kernel, one vector a thread."""

import torch
from torch import nn

from kforge.kernel import Kernel

bias_gelu_add = Kernel(
    "bias_gelu_add<T, VEC, BLOCK, WIDE>",
    source="bias_gelu_add_kforge.cu",
    grid="ceil_div(n, BLOCK * VEC)",
    block="BLOCK",
    constants={"VEC": 4, "BLOCK": 256, "WIDE": 0},
    types={"T": "x"},
    tune={"VEC": [8, 4, 2, 1], "BLOCK": [128, 256, 512], "WIDE": [0, 1]},
    require={
        "VEC": (
            "VEC * sizeof(T) <= 16 and cols % VEC == 0 and aligned(x, VEC * sizeof(T)) and "
            "aligned(bias, VEC * sizeof(T)) and aligned(residual, VEC * sizeof(T)) and aligned(y, VEC * sizeof(T))"
        ),
        "WIDE": "WIDE == 1 or n + BLOCK * VEC < 4294967296",
    },
)


class ModelNew(nn.Module):
    def forward(self, x, bias, residual):
        if x.shape != residual.shape or bias.shape != x.shape[-1:]:
            raise ValueError("x and residual must have one shape, and bias its last dimension")
        if not x.dtype == bias.dtype == residual.dtype:
            raise TypeError("x, bias and residual must have one dtype")
        first, x, bias, residual = residual, x.contiguous(), bias.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        bias_gelu_add(x, bias, residual, y, x.numel(), max(x.size(-1), 1))
        # torch gives the result the order of strides of its first operand
        return y if first.is_contiguous() else torch.empty_like(first).copy_(y)
