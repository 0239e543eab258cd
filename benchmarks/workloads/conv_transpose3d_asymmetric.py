"""A transposed 3 x 5 x 7 convolution of 32 to 16 channels on 16 volumes of 16 x 32 x 64."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [32, 16, (3, 5, 7)]


def get_inputs():
    return [torch.randn(1, 32, 3, 4, 5)]


def get_input_variants():
    return [lambda: [torch.randn(16, 32, 16, 32, 64, device="cuda")]]
