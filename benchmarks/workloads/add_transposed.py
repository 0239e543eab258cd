"""A matrix plus the transpose of another."""

import torch


def reference(a, b):
    return a + b.t()


def get_inputs():
    return [torch.randn(37, 70), torch.randn(70, 37)]


def get_input_variants():
    return [
        lambda: [torch.randn(12288, 16384, device="cuda"), torch.randn(16384, 12288, device="cuda")],
    ]
