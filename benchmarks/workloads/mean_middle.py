"""Mean over the middle of three dimensions; the last one has an odd size."""

import torch


def reference(x):
    return x.mean(dim=1)


def get_inputs():
    return [torch.randn(4, 64, 95)]


def get_input_variants():
    return [
        lambda: [torch.randn(128, 4096, 4095, device="cuda")],
        lambda: [torch.randn(128, 2048, 4097, device="cuda", dtype=torch.bfloat16)],
    ]
