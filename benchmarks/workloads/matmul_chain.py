"""A product of two matrices times a narrow one, in the order (a b) c."""

import torch


def reference(a, b, c):
    return a @ b @ c


def get_inputs():
    return [torch.randn(40, 24), torch.randn(24, 32), torch.randn(32, 8)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(8192, 4096, device="cuda"),
            torch.randn(4096, 8192, device="cuda"),
            torch.randn(8192, 64, device="cuda"),
        ]
    ]
