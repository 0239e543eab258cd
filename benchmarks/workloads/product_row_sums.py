"""Row sums of a scaled matrix product: the product itself is never needed."""

import torch


def reference(x, weight):
    return torch.sum(torch.matmul(x, weight.t()) / 2, dim=1, keepdim=True) * 1.5


def get_inputs():
    return [torch.randn(40, 120), torch.randn(96, 120)]


def get_input_variants():
    return [
        lambda: [torch.randn(1024, 8192, device="cuda"), torch.randn(8192, 8192, device="cuda")],
    ]
