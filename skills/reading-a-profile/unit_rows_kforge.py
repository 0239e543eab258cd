"""Rows of up to 32,768 columns scaled to length one: a warp or a block each, the row in registers."""

import torch
from torch import nn

from kforge.kernel import Kernel

unit_rows = Kernel(
    "unit_rows<VEC, ITEMS, TEAM, BLOCK>",
    source="unit_rows_kforge.cu",
    grid="ceil_div(rows, BLOCK // TEAM)",
    block="BLOCK",
    constants={"VEC": 4, "ITEMS": 2, "TEAM": 32, "BLOCK": 128},
    tune={"VEC": [4, 2, 1], "ITEMS": [1, 2, 4, 8, 16, 32]},
    require={
        "VEC": "cols % VEC == 0 and aligned(x, 4 * VEC) and aligned(y, 4 * VEC)",
        "ITEMS": "TEAM * VEC * ITEMS >= cols",
    },
    tuned=[
        ("cols <= 1024", {"TEAM": 32, "BLOCK": 128, "ITEMS": 1}),
        ("cols <= 8192", {"TEAM": 256, "BLOCK": 256, "ITEMS": 1}),
        (True, {"TEAM": 1024, "BLOCK": 1024, "ITEMS": 1}),
    ],
)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2 or x.dtype != torch.float32 or x.size(1) > 32768:
            raise ValueError("a float32 matrix of at most 32,768 columns is needed")
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        if x.numel() > 0:
            unit_rows(x, y, x.size(0), x.size(1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
