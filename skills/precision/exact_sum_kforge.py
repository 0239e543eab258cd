"""Row sums as exact as in double, by compensated additions in float."""

import torch
from torch import nn

from kforge.kernel import Kernel

exact_sum = Kernel(
    "exact_sum<VEC, BLOCK>",
    source="exact_sum_kforge.cu",
    grid="rows",
    block="BLOCK",
    constants={"VEC": 4, "BLOCK": 128},
    tune={"VEC": [4, 2, 1], "BLOCK": [128, 256, 512]},
    require={"VEC": "cols % VEC == 0 and aligned(x, 4 * VEC)"},
)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.float32 or x.dim() == 0:
            raise TypeError(f"float32 with at least one dimension is needed, not {x.dtype}")
        x = x.contiguous()
        y = torch.empty(x.shape[:-1], device=x.device)
        exact_sum(x, y, y.numel(), x.size(-1))
        return y
