"""A linear layer of 16,384 features for 128 rows, bounded by a number that is taken away."""

import torch
from torch.nn import functional as F


def reference(x, weight, bias, limit):
    return torch.minimum(F.linear(x, weight, bias), limit) - limit


def get_inputs():
    return [torch.randn(24, 64), torch.randn(96, 64), torch.randn(96), torch.randn(1)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(128, 16384, device="cuda"),
            torch.randn(16384, 16384, device="cuda"),
            torch.randn(16384, device="cuda"),
            torch.randn(1, device="cuda"),
        ]
    ]
