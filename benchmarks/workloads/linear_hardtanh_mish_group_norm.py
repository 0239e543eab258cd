"""A linear layer of 8192 features for 1024 rows, hard tanh, Mish, group norm over 256 groups."""

import torch
from torch.nn import functional as F


def reference(x, weight, bias, scale, shift):
    y = F.mish(F.hardtanh(F.linear(x, weight, bias)))
    return F.group_norm(y, weight.shape[0] // 32, scale, shift)


def get_inputs():
    return [torch.randn(24, 64), torch.randn(96, 64), torch.randn(96), torch.randn(96), torch.randn(96)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(1024, 8192, device="cuda"),
            torch.randn(8192, 8192, device="cuda"),
            torch.randn(8192, device="cuda"),
            torch.randn(8192, device="cuda"),
            torch.randn(8192, device="cuda"),
        ]
    ]
