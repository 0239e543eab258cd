"""Cross entropy with class labels, mean over the batch."""

import torch
import torch.nn.functional as F


def reference(x, y):
    return F.cross_entropy(x, y)


def get_inputs():
    return [torch.randn(64, 1000), torch.randint(0, 1000, (64,))]


def get_input_variants():
    return [
        lambda: [torch.randn(32768, 4096, device="cuda"), torch.randint(0, 4096, (32768,), device="cuda")],
        lambda: [torch.randn(8192, 32000, device="cuda"), torch.randint(0, 32000, (8192,), device="cuda")],
    ]
