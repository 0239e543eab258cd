"""Causal depthwise convolution: every channel filtered along the sequence by taps of its own."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, taps) / taps**0.5)

    def forward(self, x):
        channels, taps = self.weight.shape
        padded = nn.functional.pad(x, (taps - 1, 0))
        return nn.functional.conv1d(padded, self.weight[:, None, :], groups=channels)


def get_init_inputs():
    return [5, 35]


def get_inputs():
    return [torch.randn(2, 5, 300)]


def get_input_variants():
    return [
        lambda: [torch.randn(1, 5, 1)],  # one step
        lambda: [torch.randn(4096, 5, 8192)],  # for a GPU
    ]
