"""A matrix product of odd sizes, 8205 x 2949 by 2949 x 5921, in strict single precision."""

import torch


def reference(a, b):
    return a @ b


def get_inputs():
    return [torch.randn(61, 127), torch.randn(127, 95)]


def get_input_variants():
    return [lambda: [torch.randn(8205, 2949, device="cuda"), torch.randn(2949, 5921, device="cuda")]]
