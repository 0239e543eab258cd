"""Scores with minus infinity where a mask says so."""

import torch


def reference(scores, mask):
    return scores.masked_fill(mask, float("-inf"))


def get_inputs():
    return [torch.randn(4, 9, 33), torch.rand(4, 1, 33) > 0.5]


def get_input_variants():
    return [
        lambda: [torch.randn(64, 2048, 2048, device="cuda"), torch.rand(64, 1, 2048, device="cuda") > 0.5],
    ]
