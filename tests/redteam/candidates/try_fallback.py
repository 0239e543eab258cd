# task: softmax
# plan: quick
# status: rejected
# fires:
"""Row 8: a failing kernel is hidden by the reference."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        try:
            softmax_rows(x, y, 0, 0)
        except Exception:
            y = x.softmax(-1)
        return y
