"""Images from channels first to channels last, scaled."""

import torch


def reference(x):
    return x.permute(0, 2, 3, 1).contiguous() * 2.0


def get_inputs():
    return [torch.randn(2, 5, 9, 11)]


def get_input_variants():
    return [
        lambda: [torch.randn(64, 64, 256, 256, device="cuda")],
        lambda: [torch.randn(256, 3, 512, 512, device="cuda")],
    ]
