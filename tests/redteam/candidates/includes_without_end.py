# task: softmax
# plan: quick
# status: build_failed
# fires:
# static: off
# cuda: float m = -INFINITY; ->\n#include "/dev/zero"\n
# call_s: 10
"""Own: past the static gate, an include that never ends; the compiler runs in the sandbox, and only that dies."""

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
