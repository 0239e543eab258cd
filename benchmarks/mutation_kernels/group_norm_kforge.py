import torch
from torch import nn

from kforge.kernel import Kernel

group_norm = Kernel("group_norm", source="group_norm_kforge.cu", grid="(images * groups, 1, 1)", block="(128, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self, groups, channels, eps=1e-5):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        images, channels, pixels = x.size(0), x.size(1), x.size(2) * x.size(3)
        group_norm(x, self.weight, self.bias, y, images, channels, self.groups, pixels, self.eps)
        return y
