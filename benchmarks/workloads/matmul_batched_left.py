"""A batch of matrices times one matrix: 16 x 1024 x 2048 by 2048 x 768."""

import torch


def reference(a, b):
    return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(3, 24, 64), torch.randn(64, 40)]


def get_input_variants():
    return [lambda: [torch.randn(16, 1024, 2048, device="cuda"), torch.randn(2048, 768, device="cuda")]]
