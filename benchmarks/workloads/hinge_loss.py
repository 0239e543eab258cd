"""Hinge loss with one label for a column, mean over everything."""

import torch


def reference(x, y):
    return torch.mean(torch.clamp(1 - x * y, min=0))


def get_inputs():
    return [torch.rand(64, 1000), torch.randint(0, 2, (1000,)).float() * 2 - 1]


def get_input_variants():
    return [
        lambda: [torch.rand(32768, 32768, device="cuda"), torch.randint(0, 2, (32768,), device="cuda").float() * 2 - 1],
    ]
