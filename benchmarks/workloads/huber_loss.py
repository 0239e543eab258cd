"""Smooth L1 loss to a scalar."""

import torch
import torch.nn.functional as F


def reference(x, y):
    return F.smooth_l1_loss(x, y)


def get_inputs():
    return [torch.rand(64, 1000) * 3, torch.rand(64, 1000)]


def get_input_variants():
    return [lambda: [torch.rand(32768, 32768, device="cuda"), torch.rand(32768, 32768, device="cuda")]]
