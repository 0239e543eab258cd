"""A transposed 3 x 3 x 3 convolution with stride 2 of 64 to 128 channels on 16 volumes of 24 x 48 x 48.

Then bounded below, halved.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x).clamp(min=-1.0) / 2.0


def get_init_inputs():
    return [64, 128, 3]


def get_inputs():
    return [torch.randn(1, 64, 3, 3, 4)]


def get_input_variants():
    return [lambda: [torch.randn(16, 64, 24, 48, 48, device="cuda")]]
