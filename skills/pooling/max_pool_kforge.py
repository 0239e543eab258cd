"""Maximum over windows of 3 x 3 with a border of one: each line of the image is read once."""

import torch
from torch import nn

from kforge.kernel import Kernel

max_pool = Kernel(
    "max_pool<T, VEC, ROWS>",
    source="max_pool_kforge.cu",
    grid="ceil_div(planes * ceil_div(height, ROWS) * ceil_div(width, 32 * VEC), 4)",
    block=128,
    constants={"VEC": 8, "ROWS": 4},
    types={"T": "x"},
    tune={"VEC": [8, 4, 1], "ROWS": [4, 8, 16]},
    require={
        "VEC": (
            "VEC * sizeof(T) <= 16 and width % VEC == 0 and aligned(x, VEC * sizeof(T)) and aligned(y, VEC * sizeof(T))"
        ),
    },
)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 4 or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"images of float32, float16 or bfloat16 are needed: {x.dtype} {tuple(x.shape)}")
        channels_last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        x = x.contiguous()
        n, channels, height, width = x.shape
        y = torch.empty_like(x)
        max_pool(x, y, n * channels, height, width)
        return y.contiguous(memory_format=torch.channels_last) if channels_last else y
