"""Running sum that leaves the own element out: a zero is put in front, and the last row dropped."""

import torch


def reference(x):
    first = torch.zeros_like(x[:, :1])
    return torch.cumsum(torch.cat((first, x), dim=1)[:-1], dim=1)


def get_inputs():
    return [torch.randn(5, 1024)]


def get_input_variants():
    return [lambda: [torch.randn(32768, 32768, device="cuda")]]
