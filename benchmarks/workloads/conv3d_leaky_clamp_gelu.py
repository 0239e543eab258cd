"""A 3 x 3 x 3 convolution of 8 to 64 channels on 128 volumes of 16 x 64 x 64, leaky ReLU, shifted, clamped, GELU."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, size)
        self.shift = nn.Parameter(torch.randn(filters, 1, 1, 1))

    def forward(self, x):
        return F.gelu((F.leaky_relu(self.conv(x), 0.2) + self.shift).clamp(-1.0, 1.0))


def get_init_inputs():
    return [8, 64, 3]


def get_inputs():
    return [torch.randn(1, 8, 5, 6, 7)]


def get_input_variants():
    return [lambda: [torch.randn(128, 8, 16, 64, 64, device="cuda")]]
