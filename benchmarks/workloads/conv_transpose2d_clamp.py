"""A transposed 3 x 3 convolution of 64 channels on 128 images of 128 x 128, bias, clamps and scales."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, channels, size, stride=2, padding=1, output_padding=1)
        self.shift = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        y = self.conv(x) + self.shift
        return torch.clamp(torch.clamp(y, 0.0, 1.0) * 2.0, 0.0, 1.0) / 2.0


def get_init_inputs():
    return [64, 3]


def get_inputs():
    return [torch.randn(2, 64, 5, 4)]


def get_input_variants():
    return [lambda: [torch.randn(128, 64, 128, 128, device="cuda")]]
