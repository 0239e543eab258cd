"""A linear layer of 4096 features for 8192 rows, layer norm, in bfloat16."""

import torch
from torch.nn import functional as F


def reference(x, weight, bias, scale, shift):
    y = F.linear(x, weight, bias)
    return F.layer_norm(y, y.shape[1:], scale, shift)


def get_inputs():
    return [
        torch.randn(24, 64, dtype=torch.bfloat16),
        torch.randn(96, 64, dtype=torch.bfloat16),
        torch.randn(96, dtype=torch.bfloat16),
        torch.randn(96, dtype=torch.bfloat16),
        torch.randn(96, dtype=torch.bfloat16),
    ]


def get_input_variants():
    return [
        lambda: [
            torch.randn(8192, 4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(4096, dtype=torch.bfloat16, device="cuda"),
        ]
    ]
