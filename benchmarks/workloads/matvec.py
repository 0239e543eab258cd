"""A wide matrix times a vector kept as one column."""

import torch


def reference(a, b):
    return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(300, 1100), torch.randn(1100, 1)]


def get_input_variants():
    return [
        lambda: [torch.randn(2048, 1048576, device="cuda"), torch.randn(1048576, 1, device="cuda")],
        lambda: [
            torch.randn(16384, 65536, device="cuda", dtype=torch.bfloat16),
            torch.randn(65536, 1, device="cuda", dtype=torch.bfloat16),
        ],
    ]
