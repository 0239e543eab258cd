"""A transposed 3 x 7 convolution of 32 channels on 8 images of 512 x 1024, padded."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, channels, size, padding=(1, 3))

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [32, (3, 7)]


def get_inputs():
    return [torch.randn(1, 32, 5, 8)]


def get_input_variants():
    return [lambda: [torch.randn(8, 32, 512, 1024, device="cuda")]]
