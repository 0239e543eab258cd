"""Running sum of what a mask keeps, in one read and one write, for many rows or few long ones."""

import torch
from torch import nn

from kforge.kernel import Kernel

TILES = 1024  # blocks wanted: several for each multiprocessor of the largest GPU

REQUIRE = {
    "VEC": (
        "VEC * sizeof(T) <= 16 and cols % VEC == 0 and aligned(x, VEC * sizeof(T)) and aligned(keep, VEC) and "
        "aligned(y, VEC * sizeof(T))"
    ),
}

scan_rows = Kernel(
    "scan_rows<T, BLOCK, VEC>",
    source="masked_cumsum_kforge.cu",
    grid="rows",
    block="BLOCK",
    constants={"BLOCK": 128, "VEC": 8},
    types={"T": "x"},
    tune={"BLOCK": [128, 256, 512], "VEC": [8, 4, 1]},
    require=REQUIRE,
)

scan_tiles = Kernel(
    "scan_tiles<T, BLOCK, VEC>",
    source="masked_cumsum_kforge.cu",
    grid="rows * ceil_div(cols, BLOCK * VEC)",
    block="BLOCK",
    constants={"BLOCK": 128, "VEC": 8},
    types={"T": "x"},
    tune={"BLOCK": [128, 256, 512], "VEC": [8, 4, 1]},
    require=REQUIRE,
    workspace="rows * ceil_div(cols, BLOCK * VEC) * 32 + 4",
    zeroed=True,
)


class ModelNew(nn.Module):
    def forward(self, x, keep):
        if x.dim() != 2 or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"two dimensions of float32, float16 or bfloat16 are needed: {x.dtype} {tuple(x.shape)}")
        if keep.dtype != torch.bool or keep.shape != x.shape:
            raise ValueError(f"a mask of the shape of x is needed: {keep.dtype} {tuple(keep.shape)}")
        x, keep = x.contiguous(), keep.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        few = rows < TILES and cols > 8192
        (scan_tiles if few else scan_rows)(x, keep, y, rows, cols)
        return y
