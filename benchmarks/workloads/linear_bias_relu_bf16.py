"""A linear layer of 8192 features for 4096 rows, ReLU, in bfloat16."""

import torch
from torch.nn import functional as F


def reference(x, weight, bias):
    return torch.relu(F.linear(x, weight, bias))


def get_inputs():
    return [
        torch.randn(24, 64, dtype=torch.bfloat16),
        torch.randn(96, 64, dtype=torch.bfloat16),
        torch.randn(96, dtype=torch.bfloat16),
    ]


def get_input_variants():
    return [
        lambda: [
            torch.randn(4096, 8192, dtype=torch.bfloat16, device="cuda"),
            torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda"),
            torch.randn(8192, dtype=torch.bfloat16, device="cuda"),
        ]
    ]
