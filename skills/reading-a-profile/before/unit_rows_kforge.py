"""Rows scaled to length one, a thread each: the kernel before its profile was read."""

import torch
from torch import nn

from kforge.kernel import Kernel

unit_rows = Kernel("unit_rows", source="unit_rows_kforge.cu", grid="ceil_div(rows, 64)", block=64)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2 or x.dtype != torch.float32:
            raise ValueError("a float32 matrix is needed")
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        unit_rows(x, y, x.size(0), x.size(1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
