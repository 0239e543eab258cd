"""A matrix written out transposed."""

import torch


def reference(x):
    return x.t().contiguous()


def get_inputs():
    return [torch.randn(70, 37)]


def get_input_variants():
    return [
        lambda: [torch.randn(16384, 16384, device="cuda")],
        lambda: [torch.randn(16381, 16387, device="cuda", dtype=torch.bfloat16)],
    ]
