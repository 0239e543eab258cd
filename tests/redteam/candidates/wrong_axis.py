# task: softmax
# plan: quick
# status: wrong
# fires:
"""Row 19: normalises columns of the transposed matrix."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x.t().contiguous(), y, x.size(1), x.size(0))
        return y
