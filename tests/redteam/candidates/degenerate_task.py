# task: constant
# plan: quick
# status: verified
# fires:
"""Row 11: the reference is constant, and so is the kernel. Said to the user, and never counted as a win."""

import torch
from torch import nn

from kforge.kernel import Kernel

ones = Kernel("ones", source="constant_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        ones(y, x.numel())
        return y
