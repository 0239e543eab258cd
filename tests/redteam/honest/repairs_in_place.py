# task: mended
# plan: standard
# status: verified
# fires:
"""A kernel that mends NaN in a copy: on plain inputs it has nothing to do, and that is no decoy."""

import torch
from torch import nn

from kforge.kernel import Kernel

mend = Kernel("mend", source="mended_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.contiguous().clone()
        mend(y, y.numel())
        return y
