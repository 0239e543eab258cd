"""Three linear layers of 1024 features on the same 8192 rows: queries, keys and values."""

import torch
from torch.nn import functional as F


def reference(x, q, k, v):
    return tuple(torch.tanh(F.linear(x, w)) for w in (q, k, v))


def get_inputs():
    return [torch.randn(24, 64), torch.randn(40, 64), torch.randn(40, 64), torch.randn(40, 64)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(8192, 1024, device="cuda"),
            torch.randn(1024, 1024, device="cuda"),
            torch.randn(1024, 1024, device="cuda"),
            torch.randn(1024, 1024, device="cuda"),
        ]
    ]
