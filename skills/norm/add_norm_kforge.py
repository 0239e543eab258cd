"""x + residual and its layer norm in one kernel: a warp for short rows, a block for rows up to 32,768 columns."""

import torch
from torch import nn

from kforge.kernel import Kernel

MOST = 32768  # columns: 1,024 threads with 32 each

add_norm = Kernel(
    "add_norm<T, W, VEC, ITEMS, TEAM, BLOCK>",
    source="add_norm_kforge.cu",
    grid="ceil_div(rows, BLOCK // TEAM)",
    block="BLOCK",
    constants={"VEC": 4, "ITEMS": 1, "TEAM": 32, "BLOCK": 128},
    types={"T": "x", "W": "weight"},
    tune={"VEC": [8, 4, 2, 1], "ITEMS": [1, 2, 4, 8, 16, 32]},
    require={
        "VEC": (
            "VEC * sizeof(T) <= 16 and cols % VEC == 0 and aligned(x, VEC * sizeof(T)) and "
            "aligned(residual, VEC * sizeof(T)) and aligned(normed, VEC * sizeof(T)) and "
            "aligned(total, VEC * sizeof(T)) and aligned(weight, VEC * sizeof(W)) and aligned(bias, VEC * sizeof(W))"
        ),
        "ITEMS": "TEAM * VEC * ITEMS >= cols",
    },
    tuned=[
        ("cols <= 1024", {"TEAM": 32, "BLOCK": 128}),
        ("cols <= 4096", {"TEAM": 256, "BLOCK": 256}),
        ("cols <= 16384", {"TEAM": 512, "BLOCK": 512}),
        (True, {"TEAM": 1024, "BLOCK": 1024}),
    ],
)


def like(result, source):
    """`result` with the strides that torch's pointwise operators take over from `source`."""
    return result if source.is_contiguous() else torch.empty_like(source).copy_(result)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, residual):
        norm, cols = self.norm, x.size(-1)
        if x.shape != residual.shape or x.dtype != residual.dtype or cols != norm.weight.numel() or cols > MOST:
            raise ValueError(f"x and residual of one shape and dtype are needed, with {norm.weight.numel()} columns")
        given, x, residual = x, x.contiguous(), residual.contiguous()
        normed, total = torch.empty_like(x), torch.empty_like(x)
        rows = x.numel() // max(cols, 1)
        add_norm(x, residual, norm.weight, norm.bias, normed, total, rows, cols, norm.eps)
        return normed, like(total, given)
