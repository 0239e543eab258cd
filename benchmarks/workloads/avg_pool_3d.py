"""Mean over windows of 3 x 3 x 3 that advance by two, of volumes."""

import torch
import torch.nn.functional as F


def reference(x):
    return F.avg_pool3d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(1, 3, 8, 12, 40)]


def get_input_variants():
    return [lambda: [torch.randn(16, 32, 128, 128, 256, device="cuda")]]
