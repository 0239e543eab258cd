import torch


def reference(x):
    return {"twice": (2 * x).contiguous(), "head": x[1:3], "width": x.size(1), "none": None}


def get_inputs():
    return {"x": torch.randn(20, 30)}
