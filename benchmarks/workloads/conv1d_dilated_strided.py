"""A convolution of three taps four apart with stride 3 of 64 to 128 channels on 64 rows of 524,280."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv1d(inputs, filters, size, stride=3, dilation=4)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [64, 128, 3]


def get_inputs():
    return [torch.randn(1, 64, 40)]


def get_input_variants():
    return [lambda: [torch.randn(64, 64, 524280, device="cuda")]]
