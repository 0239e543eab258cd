"""128 products of 512 x 1024 by 1024 x 2048 in single precision."""

import torch


def reference(a, b):
    return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(3, 24, 64), torch.randn(3, 64, 40)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(128, 512, 1024, device="cuda"),
            torch.randn(128, 1024, 2048, device="cuda"),
        ]
    ]
