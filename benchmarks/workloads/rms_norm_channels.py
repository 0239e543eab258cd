"""RMS norm over the channels of images."""

import torch


def reference(x):
    rms = torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5)
    return x / rms


def get_inputs():
    return [torch.randn(2, 64, 16, 24)]


def get_input_variants():
    return [lambda: [torch.randn(112, 64, 512, 512, device="cuda")]]
