"""Softmax over dimension 1 of three, and of images over their channels."""

import torch


def reference(x):
    return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(3, 70, 33)]


def get_input_variants():
    return [
        lambda: [torch.randn(64, 1024, 4096, device="cuda")],
        lambda: [torch.randn(16, 512, 128 * 127, device="cuda", dtype=torch.bfloat16)],
    ]
