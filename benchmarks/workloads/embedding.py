"""Rows of a table by index."""

import torch


def reference(tokens, table):
    return torch.nn.functional.embedding(tokens, table)


def get_inputs():
    return [torch.randint(50, (4, 9)), torch.randn(50, 36)]


def get_input_variants():
    return [
        lambda: [torch.randint(50257, (256, 2048), device="cuda"), torch.randn(50257, 1024, device="cuda")],
        lambda: [
            torch.randint(50257, (256, 2048), device="cuda"),
            torch.randn(50257, 1024, device="cuda", dtype=torch.bfloat16),
        ],
    ]
