"""A 3 x 5 x 7 convolution of 3 to 64 channels on 16 volumes of 64 x 64 x 64."""

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
    return [torch.randn(1, 3, 4, 6, 9)]


def get_input_variants():
    return [lambda: [torch.randn(16, 3, 64, 64, 64, device="cuda")]]
