# task: linear_relu
# plan: quick
# status: verified
# fires:
"""cuBLAS multiplies, an own kernel adds the bias and clips."""

import torch
from torch import nn

from kforge.kernel import Kernel

epilogue = Kernel("epilogue", source="linear_relu_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(24, 40))
        self.bias = nn.Parameter(torch.zeros(24))

    def forward(self, x):
        y = torch.empty((x.size(0), self.weight.size(0)), dtype=x.dtype, device=x.device)
        torch.mm(x, self.weight.t(), out=y)
        epilogue(y, self.bias, y.numel(), y.size(1))
        return y
