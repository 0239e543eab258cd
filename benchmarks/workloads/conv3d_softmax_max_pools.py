"""A 3 x 3 x 3 convolution of 3 to 16 channels on 128 volumes of 16 x 32 x 32.

Then softmax over channels, max pooling twice.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inputs, filters, size):
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, size)

    def forward(self, x):
        y = torch.softmax(self.conv(x), 1)
        return F.max_pool3d(F.max_pool3d(y, 2), 2)


def get_init_inputs():
    return [3, 16, 3]


def get_inputs():
    return [torch.randn(1, 3, 10, 10, 11)]


def get_input_variants():
    return [lambda: [torch.randn(128, 3, 16, 32, 32, device="cuda")]]
