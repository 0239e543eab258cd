"""A depthwise 3 x 3 convolution of 64 channels and one of 1 x 1 to 128, on 16 images of 512 x 512."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.along = nn.Conv2d(inputs, inputs, size, padding=1, groups=inputs, bias=False)
        self.across = nn.Conv2d(inputs, filters, 1, bias=False)

    def forward(self, x):
        return self.across(self.along(x))


def get_init_inputs():
    return [64, 128, 3]


def get_inputs():
    return [torch.randn(1, 64, 6, 7)]


def get_input_variants():
    return [lambda: [torch.randn(16, 64, 512, 512, device="cuda")]]
