"""RMSNorm of a language model: normalise by the root mean square, then scale."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        variance = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(variance + self.eps) * self.weight


def get_init_inputs():
    return [1024]


def get_inputs():
    return [torch.randn(4, 64, 1024)]


def get_input_variants():
    return [
        lambda: [torch.randn(1, 1, 1024)],  # one token, as in decoding
        lambda: [torch.randn(8, 4096, 1024)],  # for a GPU
    ]
