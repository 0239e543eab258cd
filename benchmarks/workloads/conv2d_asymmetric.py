"""A 5 x 7 convolution of 64 to 128 channels on 8 images of 512 x 256."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv2d(inputs, filters, size)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [64, 128, (5, 7)]


def get_inputs():
    return [torch.randn(1, 64, 8, 9)]


def get_input_variants():
    return [lambda: [torch.randn(8, 64, 512, 256, device="cuda")]]
