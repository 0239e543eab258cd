import torch


def reference(x):
    """The largest element of each row."""
    return x.amax(dim=-1)


def get_inputs():
    return [torch.randn(12, 200)]
