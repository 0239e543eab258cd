"""The sum of everything, one number."""

import torch


def reference(x):
    return x.sum()


def get_inputs():
    return [torch.randn(70, 300)]


def get_input_variants():
    return [
        lambda: [torch.randn(32768, 32768, device="cuda")],
        lambda: [torch.randn(1000003, 513, device="cuda", dtype=torch.bfloat16)],
    ]
