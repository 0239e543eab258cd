"""A transposed 3 x 3 x 3 convolution with stride 2 of 32 to 64 channels on 32 means of volumes of 32 x 64 x 64.

Then clamped, softmax over places.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=1, output_padding=1)
        self.scale = nn.Parameter(torch.ones(1, filters, 1, 1, 1))

    def forward(self, x):
        y = self.conv(F.avg_pool3d(x, 2)).clamp(0.0, 1.0)
        return torch.softmax(y.flatten(2), 2).view(y.shape) * self.scale


def get_init_inputs():
    return [32, 64, 3]


def get_inputs():
    return [torch.randn(1, 32, 4, 6, 8)]


def get_input_variants():
    return [lambda: [torch.randn(32, 32, 32, 64, 64, device="cuda")]]
