"""A matrix product in strict single precision, 2048 x 8192 by 8192 x 4096."""

import torch


def reference(a, b):
    return a @ b


def get_inputs():
    return [torch.randn(64, 128), torch.randn(128, 96)]


def get_input_variants():
    return [lambda: [torch.randn(2048, 8192, device="cuda"), torch.randn(8192, 4096, device="cuda")]]
