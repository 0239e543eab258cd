"""Triplet margin loss of rows, mean over the batch."""

import torch
import torch.nn.functional as F


def reference(a, p, n):
    return F.triplet_margin_loss(a, p, n, margin=1.0)


def get_inputs():
    return [torch.randn(64, 512), torch.randn(64, 512), torch.randn(64, 512)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(32768, 8192, device="cuda"),
            torch.randn(32768, 8192, device="cuda"),
            torch.randn(32768, 8192, device="cuda"),
        ],
    ]
