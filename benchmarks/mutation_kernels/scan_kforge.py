import torch
from torch import nn

from kforge.kernel import Kernel

scan_rows = Kernel("scan_rows", source="scan_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scan_rows(x, y, x.size(0), x.size(1))
        return y
