"""A linear layer of eight-bit weights and activations as floats, 4096 features for 8192 rows, scales, SiLU."""

import torch
from torch.nn import functional as F


def reference(x, weight, row_scale, column_scale):
    return F.silu(x.float() @ weight.float().t() * row_scale * column_scale)


def get_inputs():
    return [
        torch.randint(-128, 128, (24, 64), dtype=torch.int8),
        torch.randint(-128, 128, (64, 64), dtype=torch.int8),
        torch.rand(24, 1),
        torch.rand(64),
    ]


def get_input_variants():
    return [
        lambda: [
            torch.randint(-128, 128, (8192, 4096), dtype=torch.int8, device="cuda"),
            torch.randint(-128, 128, (4096, 4096), dtype=torch.int8, device="cuda"),
            torch.rand(8192, 1, device="cuda"),
            torch.rand(4096, device="cuda"),
        ]
    ]
