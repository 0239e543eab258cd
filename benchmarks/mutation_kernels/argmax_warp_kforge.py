import torch
from torch import nn

from kforge.kernel import Kernel

argmax_warp = Kernel(
    "argmax_warp", source="argmax_warp_kforge.cu", grid="(ceil_div(rows, 4), 1, 1)", block="(128, 1, 1)"
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        value = torch.empty(x.size(0), dtype=x.dtype, device=x.device)
        index = torch.empty(x.size(0), dtype=torch.long, device=x.device)
        argmax_warp(x, value, index, x.size(0), x.size(1))
        return value, index
