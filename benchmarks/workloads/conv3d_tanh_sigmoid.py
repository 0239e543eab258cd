"""A 3 x 3 x 3 convolution of 3 to 16 channels on 128 volumes of 16 x 64 x 64, scaled, tanh, sigmoid."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, size)
        self.scale = nn.Parameter(torch.randn(filters, 1, 1, 1))
        self.shift = nn.Parameter(torch.randn(filters, 1, 1, 1))

    def forward(self, x):
        return torch.sigmoid(torch.tanh(self.conv(x) * self.scale) * self.shift)


def get_init_inputs():
    return [3, 16, 3]


def get_inputs():
    return [torch.randn(1, 3, 5, 6, 7)]


def get_input_variants():
    return [lambda: [torch.randn(128, 3, 16, 64, 64, device="cuda")]]
