"""Rows of up to 12,000 columns divided by their peak, and their mean magnitude, the row held in shared memory."""

import torch
from torch import nn

from kforge.kernel import Kernel

peak = Kernel("peak", source="peak_kforge.cu", grid="rows", block=128, shared="cols * 4")


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2 or x.dtype != torch.float32 or not 0 < x.size(1) <= 12000:
            raise ValueError("a float32 matrix of 1 to 12,000 columns is needed")
        given, x = x, x.contiguous()
        y, means = torch.empty_like(x), torch.empty(x.size(0), device=x.device)
        peak(x, y, means, x.size(0), x.size(1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y), means
