"""A filter of 3 x 3 for each of 128 channels of a wide image, without border."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.filter = nn.Conv2d(channels, channels, 3, groups=channels, bias=False)

    def forward(self, x):
        return self.filter(x)


def get_init_inputs():
    return [128]


def get_inputs():
    return [torch.randn(1, 128, 10, 40)]


def get_input_variants():
    return [lambda: [torch.randn(64, 128, 256, 512, device="cuda")]]
