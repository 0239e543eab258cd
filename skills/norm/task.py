"""Layer norm of a sum with a residual, as between the blocks of a transformer; the sum is needed further on."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, residual):
        total = x + residual
        return self.norm(total), total


def get_init_inputs():
    return [132]


def get_inputs():
    return [torch.randn(3, 11, 132), torch.randn(3, 11, 132) + 30]  # a residual stream has a mean


def get_input_variants():
    return [
        lambda: [torch.randn(1, 1, 132), torch.randn(1, 1, 132)],  # one token, as in decoding
        lambda: [torch.randn(64, 4096, 132), torch.randn(64, 4096, 132)],  # for a GPU
    ]
