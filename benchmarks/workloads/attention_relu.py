"""Causal attention with ReLU for softmax: 16 batches of 12 heads, 1024 positions, 64 features."""

import torch
from torch.nn import functional as F


def reference(q, k, v):
    score = q @ k.transpose(-2, -1) * 0.125
    hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return F.relu(score.masked_fill(hidden, float("-inf"))) @ v


def get_inputs():
    return [torch.randn(2, 3, 20, 16), torch.randn(2, 3, 20, 16), torch.randn(2, 3, 20, 16)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(16, 12, 1024, 64, device="cuda"),
            torch.randn(16, 12, 1024, 64, device="cuda"),
            torch.randn(16, 12, 1024, 64, device="cuda"),
        ]
    ]
