"""A transposed 3 x 3 x 3 convolution with stride 2 of 32 to 64 channels on 16 volumes of 16 x 32 x 32.

Then sums and products with itself.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=1, output_padding=1)
        self.shift = nn.Parameter(torch.randn(filters, 1, 1, 1))

    def forward(self, x):
        y = self.conv(x)
        return ((y + self.shift) + y) * y + y


def get_init_inputs():
    return [32, 64, 3]


def get_inputs():
    return [torch.randn(1, 32, 3, 3, 4)]


def get_input_variants():
    return [lambda: [torch.randn(16, 32, 16, 32, 32, device="cuda")]]
