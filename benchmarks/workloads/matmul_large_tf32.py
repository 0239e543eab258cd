"""A product of 8192 x 8192 matrices at TF32."""

import torch

PRECISION = "high"


def reference(a, b):
    return a @ b


def get_inputs():
    return [torch.randn(24, 64), torch.randn(64, 40)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(8192, 8192, device="cuda"),
            torch.randn(8192, 8192, device="cuda"),
        ]
    ]
