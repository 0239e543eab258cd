"""A filter of 3 x 3 for each channel of an image, without border."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.filter = nn.Conv2d(channels, channels, 3, groups=channels, bias=False)

    def forward(self, x):
        return self.filter(x)


def get_init_inputs():
    return [64]


def get_inputs():
    return [torch.randn(1, 64, 12, 44)]


def get_input_variants():
    return [lambda: [torch.randn(16, 64, 512, 512, device="cuda")]]
