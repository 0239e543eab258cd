"""Running sum of the elements that a mask keeps."""

import torch


def reference(x, keep):
    return torch.cumsum(x * keep, dim=1)


def get_inputs():
    return [torch.randn(4, 1024), torch.randint(0, 2, (4, 1024)).bool()]


def get_input_variants():
    return [lambda: [torch.randn(32768, 32768, device="cuda"), torch.rand(32768, 32768, device="cuda") > 0.5]]
