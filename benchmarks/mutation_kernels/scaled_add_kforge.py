import torch
from torch import nn

from kforge.kernel import Kernel

scaled_add = Kernel(
    "scaled_add",
    source="scaled_add_kforge.cu",
    grid="(ceil_div(n, 128 * VEC), 1, 1)",
    block="(128, 1, 1)",
    constants={"VEC": 4},
    tune={"VEC": [4, 1]},
    require={
        "VEC": (
            "n % VEC == 0 and aligned(x, 4 * VEC) and aligned(y, 4 * VEC) and aligned(total, 4 * VEC) and "
            "aligned(difference, 4 * VEC)"
        )
    },
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        given = x
        x, y = x.contiguous(), y.contiguous()
        total, difference = torch.empty_like(x), torch.empty_like(x)
        scaled_add(x, y, total, difference, x.numel())
        if given.is_contiguous():
            return total, difference
        return torch.empty_like(given).copy_(total), torch.empty_like(given).copy_(difference)
