"""A 3 x 3 convolution of 64 to 128 channels on 64 images of 256 x 256, Mish twice."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv2d(inputs, filters, size)

    def forward(self, x):
        return F.mish(F.mish(self.conv(x)))


def get_init_inputs():
    return [64, 128, 3]


def get_inputs():
    return [torch.randn(2, 64, 9, 8)]


def get_input_variants():
    return [lambda: [torch.randn(64, 64, 256, 256, device="cuda")]]
