# task: softmax
# plan: quick
# status: wrong
# fires: race
# cuda: if (t < s) part[t] += part[t + s];\n        __syncthreads(); -> if (t < s) part[t] += part[t + s];
"""Row 21: a barrier of the reduction is left out, and the order of threads decides."""

import torch
from torch import nn

from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        return y
