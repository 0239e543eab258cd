# task: softmax
# plan: quick
# status: hacked
# fires: torch_compute
"""Row 8: torch computes through operators that have no name in the source."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        z = x - 0.0
        return y + z * 0.0
