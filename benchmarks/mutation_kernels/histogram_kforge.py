import torch
from torch import nn

from kforge.kernel import Kernel

histogram = Kernel(
    "histogram", source="histogram_kforge.cu", grid="(ceil_div(n, 1024), 1, 1)", block="(128, 1, 1)", writes=("counts",)
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        counts = torch.zeros(32, dtype=torch.float32, device=x.device)
        histogram(x, counts, x.numel())
        return counts
