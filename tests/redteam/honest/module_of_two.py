# task: softmax
# plan: standard
# status: verified
# fires:
"""A Module whose two kernels share one source."""

import torch
from torch import nn

from kforge.kernel import Kernel, Module

both = Module("softmax_kforge.cu")
statistics = Kernel("statistics", both, grid="(ceil_div(rows, 32), 1, 1)", block="(32, 1, 1)")
divide = Kernel("divide", both, grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        stats = torch.empty((x.size(0), 2), dtype=x.dtype, device=x.device)
        y = torch.empty_like(x)
        statistics(x, stats, x.size(0), x.size(1))
        divide(x, stats, y, x.numel(), x.size(1))
        return y
