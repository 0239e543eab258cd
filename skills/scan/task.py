"""Running sum of what a mask keeps, along rows: eager mode writes the product and reads it again."""

import torch


def reference(x, keep):
    return torch.cumsum(x * keep, dim=1)


def inputs(rows, cols):
    return [torch.randn(rows, cols), torch.rand(rows, cols) < 0.7]


def get_inputs():
    return inputs(2, 8000)


def get_input_variants():
    return [
        lambda: inputs(3, 77),  # odd: single elements
        lambda: inputs(2, 9001),  # few long rows: a block for each tile
        lambda: inputs(8192, 32768),  # for a GPU
    ]
