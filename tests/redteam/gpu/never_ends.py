# task: pointwise
# plan: quick
# status: timed_out
# fires: 
# call_s: 5
# cuda: if (i < n) { -> while (n > 0 && *(volatile const float*)x == *(volatile const float*)x) { }\n    if (i < n) {
"""A kernel that spins for ever is ended with its process."""

import torch
from torch import nn

from kforge.kernel import Kernel

gelu2 = Kernel("gelu2", source="pointwise_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        gelu2(x, y, x.numel())
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
