import torch


def reference(x):
    return x.argmax(dim=-1), x > 0.5


def get_inputs():
    return [torch.randn(40, 70)]
