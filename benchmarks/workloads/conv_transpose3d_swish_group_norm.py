"""A transposed 3 x 3 x 3 convolution with stride 2 of 3 to 16 channels on 128 volumes of 16 x 32 x 32.

Then swish, group norm, hard swish.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, filters)

    def forward(self, x):
        return F.hardswish(self.norm(F.silu(self.conv(x))))


def get_init_inputs():
    return [3, 16, 3]


def get_inputs():
    return [torch.randn(1, 3, 3, 4, 5)]


def get_input_variants():
    return [lambda: [torch.randn(128, 3, 16, 32, 32, device="cuda")]]
