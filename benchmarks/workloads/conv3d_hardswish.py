"""A 3 x 3 x 3 convolution of 32 to 64 channels on 16 volumes of 16 x 32 x 32, hard swish."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, size, padding=1)

    def forward(self, x):
        return F.hardswish(self.conv(x))


def get_init_inputs():
    return [32, 64, 3]


def get_inputs():
    return [torch.randn(1, 32, 3, 4, 5)]


def get_input_variants():
    return [lambda: [torch.randn(16, 32, 16, 32, 32, device="cuda")]]
