"""A transposed 3 x 5 x 7 convolution with stride 2 of 32 channels in 4 groups on 8 volumes of 12 x 24 x 48."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, size, groups):
        super().__init__()
        self.conv = nn.ConvTranspose3d(channels, channels, size, (2, 2, 2), (1, 2, 3), (1, 1, 1), groups)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [32, (3, 5, 7), 4]


def get_inputs():
    return [torch.randn(1, 32, 3, 4, 5)]


def get_input_variants():
    return [lambda: [torch.randn(8, 32, 12, 24, 48, device="cuda")]]
