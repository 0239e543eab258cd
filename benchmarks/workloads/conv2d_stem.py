"""An 11 x 11 convolution with stride 4 of 3 to 96 channels on 256 images of 224 x 224."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv2d(inputs, filters, size, stride=4, padding=2)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [3, 96, 11]


def get_inputs():
    return [torch.randn(2, 3, 23, 19)]


def get_input_variants():
    return [lambda: [torch.randn(256, 3, 224, 224, device="cuda")]]
