"""A matrix of 4096 x 4096 times its own transpose, in single precision."""

import torch


def reference(a):
    return a @ a.T


def get_inputs():
    return [torch.randn(40, 24)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(4096, 4096, device="cuda"),
        ]
    ]
