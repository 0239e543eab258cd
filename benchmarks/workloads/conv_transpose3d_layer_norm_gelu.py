"""A transposed 4 x 4 x 4 convolution with stride 2 of 32 to 64 channels on 32 volumes of 16 x 32 x 32.

Then layer norm over rows of 64, GELU.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=1)
        self.norm = nn.LayerNorm(filters)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


def get_init_inputs():
    return [32, 64, 4]


def get_inputs():
    return [torch.randn(1, 32, 2, 2, 32)]


def get_input_variants():
    return [lambda: [torch.randn(32, 32, 16, 32, 32, device="cuda")]]
