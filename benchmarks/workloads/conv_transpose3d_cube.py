"""A transposed 3 x 3 x 3 convolution of 48 to 24 channels on 8 volumes of 96 x 96 x 96."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [48, 24, 3]


def get_inputs():
    return [torch.randn(1, 48, 3, 4, 5)]


def get_input_variants():
    return [lambda: [torch.randn(8, 48, 96, 96, 96, device="cuda")]]
