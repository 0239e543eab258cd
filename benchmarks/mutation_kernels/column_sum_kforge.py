import torch
from torch import nn

from kforge.kernel import Kernel

column_sum = Kernel("column_sum", source="column_sum_kforge.cu", grid="(ceil_div(cols, 32), 1, 1)", block="(32, 8, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.size(1), dtype=x.dtype, device=x.device)
        column_sum(x, y, x.size(0), x.size(1))
        return y
