"""A linear layer of 32,768 features for 128 rows, sigmoid, summed over the features."""

import torch
from torch.nn import functional as F


def reference(x, weight, bias):
    return torch.sigmoid(F.linear(x, weight, bias)).sum(1, keepdim=True)


def get_inputs():
    return [torch.randn(24, 64), torch.randn(96, 64), torch.randn(96)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(128, 32768, device="cuda"),
            torch.randn(32768, 32768, device="cuda"),
            torch.randn(32768, device="cuda"),
        ]
    ]
