"""Largest value of each row in 16 bits, rows of an odd length."""

import torch


def reference(x):
    return torch.amax(x, dim=-1)


def get_inputs():
    return [torch.randn(40, 301)]


def get_input_variants():
    return [
        lambda: [torch.randn(32768, 16384, device="cuda", dtype=torch.bfloat16)],
        lambda: [torch.randn(65536, 8191, device="cuda", dtype=torch.bfloat16)],
    ]
