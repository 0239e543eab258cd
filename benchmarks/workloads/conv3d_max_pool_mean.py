"""A 3 x 3 x 3 convolution of 8 to 16 channels on 128 volumes of 16 x 64 x 64.

Then max pooling, means, summed over channels.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, size)
        self.shift = nn.Parameter(torch.randn(filters, 1, 1, 1))

    def forward(self, x):
        y = F.max_pool3d(self.conv(x) / 2.0, 2)
        return (F.adaptive_avg_pool3d(y, 1) + self.shift).sum(1)


def get_init_inputs():
    return [8, 16, 3]


def get_inputs():
    return [torch.randn(1, 8, 6, 7, 8)]


def get_input_variants():
    return [lambda: [torch.randn(128, 8, 16, 64, 64, device="cuda")]]
