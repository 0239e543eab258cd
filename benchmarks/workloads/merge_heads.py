"""Heads moved behind the sequence and merged, as after attention."""

import torch


def reference(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def get_inputs():
    return [torch.randn(2, 3, 7, 16)]


def get_input_variants():
    return [
        lambda: [torch.randn(32, 16, 4096, 128, device="cuda")],
        lambda: [torch.randn(64, 16, 4096, 64, device="cuda", dtype=torch.bfloat16)],
    ]
