"""Rows of a matrix written over those of a larger one."""

import torch


def reference(x, places, rows):
    return torch.index_copy(x, 0, places, rows)


def get_inputs():
    return [torch.randn(40, 33), torch.randperm(40)[:20], torch.randn(20, 33)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(262144, 1024, device="cuda"),
            torch.randperm(262144, device="cuda")[:131072],
            torch.randn(131072, 1024, device="cuda"),
        ],
    ]
