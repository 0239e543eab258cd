"""GELU in its tanh form, as GPT-2 wrote it: eight pointwise operators in eager mode."""

import math

import torch


def reference(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(128, 3072)]


def get_input_variants():
    return [
        lambda: [torch.randn(127, 3073)],  # no dimension that vectors divide
        lambda: [torch.randn(16384, 3072)],  # for a GPU
    ]
