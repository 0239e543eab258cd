"""Two tensors side by side, one of them of an odd width."""

import torch


def reference(a, b):
    return torch.cat([a, b], dim=-1)


def get_inputs():
    return [torch.randn(40, 33), torch.randn(40, 31)]


def get_input_variants():
    return [
        lambda: [torch.randn(65536, 2049, device="cuda"), torch.randn(65536, 2047, device="cuda")],
        lambda: [torch.randn(65536, 2048, device="cuda"), torch.randn(65536, 2048, device="cuda")],
    ]
