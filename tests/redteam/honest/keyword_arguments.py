# task: softmax
# plan: quick
# status: verified
# fires:
"""The kernel's arguments by name, its source beside the file."""

from pathlib import Path

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel(
    "softmax_rows", source=Path(__file__).with_name("softmax_kforge.cu"), grid="(rows, 1, 1)", block="(64, 1, 1)"
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(rows=x.size(0), cols=x.size(1), y=y, x=x)
        return y
