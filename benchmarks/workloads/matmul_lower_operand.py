"""The lower triangle of a 4096 x 4096 matrix times another matrix."""

import torch


def reference(a, b):
    return torch.tril(a) @ b


def get_inputs():
    return [torch.randn(40, 40), torch.randn(40, 24)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(4096, 4096, device="cuda"),
            torch.randn(4096, 4096, device="cuda"),
        ]
    ]
