"""A transposed convolution of three taps of 128 channels on 64 rows of 65,536."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, filters, size)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [128, 128, 3]


def get_inputs():
    return [torch.randn(1, 128, 9)]


def get_input_variants():
    return [lambda: [torch.randn(64, 128, 65536, device="cuda")]]
