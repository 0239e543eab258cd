# task: table
# plan: quick
# status: verified
# fires:
"""A large table in constant memory, indexed by integers."""

import torch
from torch import nn

from kforge.kernel import Kernel

table_lookup = Kernel("table_lookup", source="table_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        table_lookup(x, y, x.numel())
        return y
