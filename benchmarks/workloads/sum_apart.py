"""Sum over two dimensions that do not touch, one of them the first."""

import torch


def reference(x):
    return x.sum(dim=(0, 2))


def get_inputs():
    return [torch.randn(3, 5, 4, 33)]


def get_input_variants():
    return [
        lambda: [torch.randn(64, 64, 256, 512, device="cuda")],
    ]
