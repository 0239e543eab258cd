import torch


def reference(x):
    return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(40, 1)]
