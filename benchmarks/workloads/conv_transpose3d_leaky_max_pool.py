"""A transposed 3 x 3 x 3 convolution with stride 2 of 16 to 32 channels on 16 volumes of 16 x 32 x 32.

Then leaky ReLU around a factor, max pooling.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=1, output_padding=1)
        self.scale = nn.Parameter(torch.randn(filters, 1, 1, 1))

    def forward(self, x):
        y = F.leaky_relu(self.conv(x), 0.2) * self.scale
        return F.max_pool3d(F.leaky_relu(y, 0.2), 2)


def get_init_inputs():
    return [16, 32, 3]


def get_inputs():
    return [torch.randn(1, 16, 3, 3, 4)]


def get_input_variants():
    return [lambda: [torch.randn(16, 16, 16, 32, 32, device="cuda")]]
