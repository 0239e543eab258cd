"""Heads of a projection, scaled and shifted into contiguous memory; they arrive as a view that is not contiguous."""

import torch


def reference(x, bias):
    return (x * 0.125 + bias[:, None, :]).contiguous()


def make_inputs(batch, heads, length, dim):
    return [torch.randn(batch, length, heads, dim).transpose(1, 2), torch.randn(heads, dim)]


def get_inputs():
    return make_inputs(2, 3, 9, 20)


def get_input_variants():
    return [
        lambda: make_inputs(1, 5, 7, 33),
        lambda: make_inputs(16, 32, 4096, 128),  # for a GPU
    ]
