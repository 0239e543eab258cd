"""GELU by the tanh formula, written out, elementwise."""

import math

import torch


def reference(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(64, 1024)]


def get_input_variants():
    return [lambda: [torch.randn(8192, 8192, device="cuda")]]
