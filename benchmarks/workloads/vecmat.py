"""One row times a matrix, with a bias and an activation."""

import torch


def reference(a, b, bias):
    return torch.relu(torch.matmul(a, b) + bias)


def get_inputs():
    return [torch.randn(1, 300), torch.randn(300, 70), torch.randn(70)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(1, 32768, device="cuda"),
            torch.randn(32768, 16384, device="cuda"),
            torch.randn(16384, device="cuda"),
        ],
    ]
