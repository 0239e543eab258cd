"""Maximum over windows of 3 x 3 that advance by two, of bfloat16 images of odd sizes."""

import torch
import torch.nn.functional as F


def reference(x):
    return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(2, 3, 23, 41, dtype=torch.bfloat16)]


def get_input_variants():
    return [lambda: [torch.randn(64, 64, 511, 509, dtype=torch.bfloat16, device="cuda")]]
