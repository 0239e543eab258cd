"""Row sums that must be right to the last place: accumulated in double, returned in float."""

import torch


def reference(x):
    return x.double().sum(dim=-1).float()


def get_inputs():
    return [torch.randn(1030, 601)]


def get_input_variants():
    return [
        lambda: [torch.randn(2, 20000)],
        lambda: [torch.randn(4096, 65536)],  # for a GPU
    ]
