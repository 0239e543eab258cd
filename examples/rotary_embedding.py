"""Rotary position embedding of queries and keys, in the rotate-half form."""

import torch
import torch.nn as nn


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Model(nn.Module):
    def __init__(self, head_dim, base=10000.0):
        super().__init__()
        frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, q, k, positions):
        angles = positions[:, None].float() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def get_init_inputs():
    return [64]


def make_inputs(batch, heads, kv_heads, length, dim=64):
    return [
        torch.randn(batch, heads, length, dim),
        torch.randn(batch, kv_heads, length, dim),
        torch.arange(length),
    ]


def get_inputs():
    return make_inputs(2, 8, 2, 128)


def get_input_variants():
    return [
        lambda: make_inputs(1, 8, 2, 1),  # decoding
        lambda: make_inputs(8, 32, 8, 4096),  # for a GPU
    ]
