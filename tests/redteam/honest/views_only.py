# task: softmax
# plan: quick
# status: verified
# fires:
"""Rows taken apart and written through views."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        half = x.size(0) // 2
        for part, out in ((x[:half], y[:half]), (x[half:], y[half:])):
            softmax_rows(part, out, part.size(0), part.size(1))
        return y
