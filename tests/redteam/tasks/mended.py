import torch


def reference(x):
    return torch.nan_to_num(x).contiguous()


def get_inputs():
    return [torch.randn(30, 40)]
