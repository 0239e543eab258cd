"""A 3 x 5 x 7 convolution of 3 to 64 channels on 8 volumes of 16 x 128 x 128."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, size)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [3, 64, (3, 5, 7)]


def get_inputs():
    return [torch.randn(1, 3, 4, 7, 9)]


def get_input_variants():
    return [lambda: [torch.randn(8, 3, 16, 128, 128, device="cuda")]]
