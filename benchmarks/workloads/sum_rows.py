"""Column sums of a tall matrix, as in the gradient of a bias."""

import torch


def reference(x):
    return x.sum(dim=0)


def get_inputs():
    return [torch.randn(300, 70)]


def get_input_variants():
    return [
        lambda: [torch.randn(262144, 1024, device="cuda")],
        lambda: [torch.randn(1048576, 511, device="cuda")],
        lambda: [torch.randn(524288, 1024, device="cuda", dtype=torch.bfloat16)],
    ]
