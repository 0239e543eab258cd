"""A gated pair of linear layers of 11,008 features for 4096 rows of 4096, in bfloat16."""

import torch
from torch.nn import functional as F


def reference(x, gate, up):
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def get_inputs():
    return [
        torch.randn(24, 64, dtype=torch.bfloat16),
        torch.randn(96, 64, dtype=torch.bfloat16),
        torch.randn(96, 64, dtype=torch.bfloat16),
    ]


def get_input_variants():
    return [
        lambda: [
            torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(11008, 4096, dtype=torch.bfloat16, device="cuda"),
            torch.randn(11008, 4096, dtype=torch.bfloat16, device="cuda"),
        ]
    ]
