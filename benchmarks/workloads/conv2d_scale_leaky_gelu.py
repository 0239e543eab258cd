"""A 3 x 3 convolution of 64 channels on 64 images of 256 x 256, a factor a channel, leaky ReLU, GELU."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, size)
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return F.gelu(F.leaky_relu(self.conv(x) * self.scale))


def get_init_inputs():
    return [64, 3]


def get_inputs():
    return [torch.randn(2, 64, 9, 8)]


def get_input_variants():
    return [lambda: [torch.randn(64, 64, 256, 256, device="cuda")]]
