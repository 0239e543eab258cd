"""A transposed 5 x 5 x 5 convolution with stride 2 of 32 to 64 channels on 16 volumes of 32 x 32 x 32.

Then max pooling twice, summed over channels.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inputs, filters, size, stride=2, padding=2)

    def forward(self, x):
        y = F.max_pool3d(F.max_pool3d(self.conv(x), 2), 3)
        return y.sum(1, keepdim=True)


def get_init_inputs():
    return [32, 64, 5]


def get_inputs():
    return [torch.randn(1, 32, 4, 4, 5)]


def get_input_variants():
    return [lambda: [torch.randn(16, 32, 32, 32, 32, device="cuda")]]
