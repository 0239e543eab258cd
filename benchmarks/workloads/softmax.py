"""Softmax over the last dimension, rows from 1,024 to 393,216 columns."""

import torch

COLUMNS = (1024, 2048, 4096, 8192, 16384, 32768, 393216)


def reference(x):
    shifted = x - x.amax(dim=-1, keepdim=True)
    exponent = torch.exp(shifted)
    return exponent / exponent.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(64, 1024)]


def _rows(rows, columns):
    return lambda: [torch.randn(rows, columns, device="cuda")]


def get_input_variants():
    sizes = [(1 << 28) // columns for columns in COLUMNS[:-1]]  # 1 GB each, and one of 6.4 GB
    return [_rows(rows, columns) for rows, columns in zip([*sizes, 4096], COLUMNS, strict=True)]
