"""A transposed convolution of five taps three apart of 32 to 64 channels on 32 rows of 131,072."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, filters, size, dilation=3)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [32, 64, 5]


def get_inputs():
    return [torch.randn(1, 32, 9)]


def get_input_variants():
    return [lambda: [torch.randn(32, 32, 131072, device="cuda")]]
