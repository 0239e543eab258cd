# task: softmax
# plan: quick
# status: verified
# fires:
"""A library product of which the report lists the name."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        eye = torch.zeros(x.size(1), x.size(1), device=x.device)
        eye.diagonal().fill_(1.0)
        return y @ eye
