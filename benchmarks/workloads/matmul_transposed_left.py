"""The product of a transposed matrix, 2048 x 8192 by 8192 x 4096 as they are multiplied."""

import torch


def reference(a, b):
    return a.T @ b


def get_inputs():
    return [torch.randn(128, 64), torch.randn(128, 96)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(8192, 2048, device="cuda"),
            torch.randn(8192, 4096, device="cuda"),
        ]
    ]
