"""The upper triangle of matrices, zero below it."""

import torch


def reference(x):
    return torch.triu(x)


def get_inputs():
    return [torch.randn(3, 33, 33)]


def get_input_variants():
    return [
        lambda: [torch.randn(64, 4096, 2048, device="cuda")],
    ]
