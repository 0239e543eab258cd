"""A transposed 3 x 5 x 5 convolution of 32 to 64 channels on 16 volumes of 64 x 64 x 64."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [32, 64, (3, 5, 5)]


def get_inputs():
    return [torch.randn(1, 32, 3, 4, 5)]


def get_input_variants():
    return [lambda: [torch.randn(16, 32, 64, 64, 64, device="cuda")]]
