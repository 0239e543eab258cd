"""A 5 x 9 convolution of 32 to 64 channels on 8 images of 512 x 512."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv2d(inputs, filters, size)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [32, 64, (5, 9)]


def get_inputs():
    return [torch.randn(1, 32, 8, 11)]


def get_input_variants():
    return [lambda: [torch.randn(8, 32, 512, 512, device="cuda")]]
