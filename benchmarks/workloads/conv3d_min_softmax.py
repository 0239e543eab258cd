"""A 3 x 3 x 3 convolution of 3 to 24 channels on 128 volumes of 24 x 32 x 32.

Then least along depth, softmax over channels.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, size)

    def forward(self, x):
        return torch.softmax(self.conv(x).amin(2), 1)


def get_init_inputs():
    return [3, 24, 3]


def get_inputs():
    return [torch.randn(1, 3, 5, 6, 7)]


def get_input_variants():
    return [lambda: [torch.randn(128, 3, 24, 32, 32, device="cuda")]]
