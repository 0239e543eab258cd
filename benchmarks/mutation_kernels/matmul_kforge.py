import torch
from torch import nn

from kforge.kernel import Kernel

matmul_tiles = Kernel(
    "matmul_tiles",
    source="matmul_kforge.cu",
    grid="(ceil_div(n, 16), ceil_div(m, 16), 1)",
    block="(16, 16, 1)",
)


class ModelNew(nn.Module):
    def forward(self, a, b, bias):
        a, b, bias = a.contiguous(), b.contiguous(), bias.contiguous()
        c = torch.empty((a.size(0), b.size(1)), dtype=a.dtype, device=a.device)
        matmul_tiles(a, b, bias, c, a.size(0), b.size(1), a.size(1))
        return c
