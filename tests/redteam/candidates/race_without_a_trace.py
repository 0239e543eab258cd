# task: softmax
# plan: standard
# status: wrong
# fires: race
# cuda: m = part[0];\n    __syncthreads(); -> m = part[0];\n    __syncthreads();\n    part[t / 2] = m + t;\n    __syncthreads();
"""Row 21: two threads write different values to one place, which is overwritten later; no answer shows it."""

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
