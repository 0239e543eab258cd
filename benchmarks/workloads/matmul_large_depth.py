"""A product with a depth of 524,288: 256 x 256 results."""

import torch


def reference(a, b):
    return a @ b


def get_inputs():
    return [torch.randn(24, 1000), torch.randn(1000, 20)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(256, 524288, device="cuda"),
            torch.randn(524288, 256, device="cuda"),
        ]
    ]
