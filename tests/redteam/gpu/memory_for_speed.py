# task: pointwise
# plan: standard
# status: verified
# fires:
# memory: 8
"""Row 23: right, with sixteen times the memory; the report gives the ratio."""

import torch
from torch import nn

from kforge.kernel import Kernel

gelu2 = Kernel("gelu2", source="pointwise_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty((16, *x.shape), dtype=x.dtype, device=x.device)[0]
        gelu2(x, y, x.numel())
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
