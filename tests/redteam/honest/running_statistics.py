# task: running
# plan: quick
# status: verified
# fires:
"""Changes a buffer in training as the reference does."""

import torch
from torch import nn

from kforge.kernel import Kernel

running = Kernel("running", source="running_kforge.cu", grid="(ceil_div(cols, 32), 1, 1)", block="(32, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(64))

    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        running(x, self.running_mean, y, x.size(0), x.size(1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
