"""Instance norm of large images."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(2, 64, 16, 24)]


def get_init_inputs():
    return [64]


def get_input_variants():
    return [lambda: [torch.randn(112, 64, 512, 512, device="cuda")]]
