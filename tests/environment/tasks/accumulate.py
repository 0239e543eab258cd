import torch


def reference(total, x):
    """Adds x to total in place and returns total."""
    return total.add_(x)


def get_inputs():
    return {"total": torch.randn(30, 50), "x": torch.randn(30, 50)}
