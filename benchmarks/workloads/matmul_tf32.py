"""A matrix product at torch's precision "high": TF32 operands, 4096 x 4096 by 4096 x 4096."""

import torch

PRECISION = "high"


def reference(a, b):
    return a @ b


def get_inputs():
    return [torch.randn(64, 128), torch.randn(128, 96)]


def get_input_variants():
    return [lambda: [torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")]]
