"""Rows added to those of another matrix at given places, many of them more than once."""

import torch


def reference(x, places, rows):
    return torch.index_add(x, 0, places, rows)


def get_inputs():
    return [torch.randn(40, 33), torch.randint(40, (60,)), torch.randn(60, 33)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(65536, 512, device="cuda"),
            torch.randint(65536, (262144,), device="cuda"),
            torch.randn(262144, 512, device="cuda"),
        ],
    ]
