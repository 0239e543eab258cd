"""A linear layer in bfloat16, 4096 features for 8192 rows, GELU, residual."""

import torch
from torch.nn import functional as F


def reference(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias)) + x


def get_inputs():
    return [
        torch.randn(24, 64, dtype=torch.bfloat16),
        torch.randn(64, 64, dtype=torch.bfloat16),
        torch.randn(64, dtype=torch.bfloat16),
    ]


def get_input_variants():
    return [
        lambda: [
            torch.randn(8192, 4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(4096, dtype=torch.bfloat16, device="cuda"),
        ]
    ]
