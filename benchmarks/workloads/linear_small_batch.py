"""A linear layer on a batch of four, with an activation: its weight is read once."""

import torch


def reference(x, weight, bias):
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))


def get_inputs():
    return [torch.randn(4, 1100), torch.randn(300, 1100), torch.randn(300)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(4, 16384, device="cuda"),
            torch.randn(16384, 16384, device="cuda"),
            torch.randn(16384, device="cuda"),
        ],
        lambda: [
            torch.randn(4, 16384, device="cuda", dtype=torch.bfloat16),
            torch.randn(32768, 16384, device="cuda", dtype=torch.bfloat16),
            torch.randn(32768, device="cuda", dtype=torch.bfloat16),
        ],
    ]
