"""A 3 x 3 convolution of 64 to 128 channels on 64 images of 128 x 128, times tanh of its softplus, batch norm."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv2d(inputs, filters, size)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(torch.tanh(F.softplus(y)) * y)


def get_init_inputs():
    return [64, 128, 3]


def get_inputs():
    return [torch.randn(2, 64, 5, 6)]


def get_input_variants():
    return [lambda: [torch.randn(64, 64, 128, 128, device="cuda")]]
