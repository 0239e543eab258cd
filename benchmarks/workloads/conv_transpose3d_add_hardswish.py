"""A transposed 3 x 3 x 3 convolution with stride 2 of 32 to 64 channels on 128 volumes of 16 x 16 x 16.

Then a sum with a tensor, times its hard swish.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=1, output_padding=1)

    def forward(self, x, y):
        z = self.conv(x) + y
        return z * F.hardswish(z)


def get_init_inputs():
    return [32, 64, 3]


def get_inputs():
    return [torch.randn(1, 32, 3, 3, 4), torch.randn(1, 64, 6, 6, 8)]


def get_input_variants():
    return [lambda: [torch.randn(128, 32, 16, 16, 16, device="cuda"), torch.randn(128, 64, 32, 32, 32, device="cuda")]]
