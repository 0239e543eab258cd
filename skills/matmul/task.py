"""A linear layer of a transformer in bfloat16 with GELU and a residual."""

import torch
from torch.nn import functional as F


def reference(x, weight, bias, residual):
    return F.gelu(F.linear(x, weight, bias)) + residual


def inputs(rows, depth, cols):
    shapes = ((rows, depth), (cols, depth), (cols,), (rows, cols))
    return [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]


def get_inputs():
    return inputs(13, 200, 128)  # no tile divides rows and depth


def get_input_variants():
    return [
        lambda: inputs(1, 333, 128),  # one token; lines that are no multiple of 16 bytes; a ring that wraps
        lambda: inputs(8192, 4096, 4096),  # for a GPU
    ]
