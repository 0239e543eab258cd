# task: argmax
# plan: standard
# status: verified
# fires:
"""Indices and booleans."""

import torch
from torch import nn

from kforge.kernel import Kernel

argmax_rows = Kernel("argmax_rows", source="argmax_kforge.cu", grid="(ceil_div(rows, 32), 1, 1)", block="(32, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        index = torch.empty(x.size(0), dtype=torch.long, device=x.device)
        above = torch.empty_like(x, dtype=torch.bool)
        argmax_rows(x, index, above, x.size(0), x.size(1))
        return index, above if given.is_contiguous() else torch.empty_like(given, dtype=torch.bool).copy_(above)
