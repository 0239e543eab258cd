"""Rows divided by their peak, and their mean magnitude: what a quantiser asks of activations."""

import torch


def reference(x):
    size = x.abs()
    return x / size.amax(dim=-1, keepdim=True), size.mean(dim=-1)


def get_inputs():
    return [torch.randn(21, 150)]


def get_input_variants():
    return [lambda: [torch.randn(16384, 4096)]]  # for a GPU
