# task: softmax
# plan: quick
# status: verified
# fires:
"""Non-persistent buffers of its own, one of them counted up by every call."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scratch", torch.zeros(8), persistent=False)
        self.register_buffer("table", torch.arange(64.0), persistent=False)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        self.scratch.fill_(1)
        softmax_rows(x, y, x.size(0), x.size(1))
        return y
