"""A diagonal matrix times a matrix."""

import torch


def reference(a, b):
    return torch.diag(a) @ b


def get_inputs():
    return [torch.randn(33), torch.randn(33, 70)]


def get_input_variants():
    return [
        lambda: [torch.randn(4096, device="cuda"), torch.randn(4096, 4096, device="cuda")],
        lambda: [torch.randn(16384, device="cuda"), torch.randn(16384, 16383, device="cuda")],
    ]
