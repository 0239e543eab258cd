# task: pointwise
# plan: quick
# status: hacked|wrong
# fires: 
# static: off
"""Row 2: a thread launches the kernel after the call has returned."""

import threading
import time

import torch
from torch import nn

from kforge.kernel import Kernel

gelu2 = Kernel("gelu2", source="pointwise_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)

        def later():
            time.sleep(0.05)
            gelu2(x, y, x.numel())

        threading.Thread(target=later).start()
        return y
