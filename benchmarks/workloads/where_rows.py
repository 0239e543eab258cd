"""One of two tensors, by row."""

import torch


def reference(chosen, a, b):
    return torch.where(chosen[:, None], a, b)


def get_inputs():
    return [torch.rand(40) > 0.5, torch.randn(40, 33), torch.randn(40, 33)]


def get_input_variants():
    return [
        lambda: [
            torch.rand(65536, device="cuda") > 0.5,
            torch.randn(65536, 4096, device="cuda"),
            torch.randn(65536, 4096, device="cuda"),
        ],
    ]
