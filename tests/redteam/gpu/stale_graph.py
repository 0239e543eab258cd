# task: pointwise
# plan: standard
# status: hacked|wrong
# fires:
# never: faster
"""Row 26: a graph captured on the first call's pointers is replayed ever after."""

import torch
from torch import nn

from kforge.kernel import Kernel

gelu2 = Kernel("gelu2", source="pointwise_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph, self.y = None, None

    def forward(self, x):
        if self.graph is None:
            gelu2(x.contiguous(), torch.empty_like(x), x.numel())
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = torch.empty_like(x)
                gelu2(x.contiguous(), self.y, x.numel())
        self.graph.replay()
        return self.y
