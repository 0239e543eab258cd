"""A transposed 3 x 3 convolution of 64 to 128 channels on 16 images of 512 x 512, means, logsumexp over channels."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose2d(inputs, filters, size)
        self.shift = nn.Parameter(torch.randn(filters, 1, 1))

    def forward(self, x):
        y = self.conv(x).mean((2, 3), keepdim=True) + self.shift
        return torch.logsumexp(y, 1, keepdim=True).sum((2, 3)) * 10.0


def get_init_inputs():
    return [64, 128, 3]


def get_inputs():
    return [torch.randn(1, 64, 5, 6)]


def get_input_variants():
    return [lambda: [torch.randn(16, 64, 512, 512, device="cuda")]]
