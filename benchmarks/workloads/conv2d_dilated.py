"""A 5 x 9 convolution with taps 2 and 3 apart of 32 to 64 channels on 8 images of 512 x 512, padded."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv2d(inputs, filters, size, padding=(2, 4), dilation=(2, 3))

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [32, 64, (5, 9)]


def get_inputs():
    return [torch.randn(1, 32, 12, 22)]


def get_input_variants():
    return [lambda: [torch.randn(8, 32, 512, 512, device="cuda")]]
