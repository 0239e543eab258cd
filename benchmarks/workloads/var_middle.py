"""Variance over the middle dimension."""

import torch


def reference(x):
    return x.var(dim=1)


def get_inputs():
    return [torch.randn(4, 64, 95)]


def get_input_variants():
    return [
        lambda: [torch.randn(64, 2048, 2047, device="cuda")],
    ]
