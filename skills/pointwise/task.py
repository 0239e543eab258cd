"""A feed-forward layer's bias and GELU, added to the residual: three pointwise operators in eager mode."""

import torch


def reference(x, bias, residual):
    return residual + torch.nn.functional.gelu(x + bias)


def get_inputs():
    return [torch.randn(29, 68), torch.randn(68), torch.randn(29, 68)]


def get_input_variants():
    return [
        lambda: [torch.randn(7, 5, 33).half(), torch.randn(33).half(), torch.randn(7, 5, 33).half()],
        lambda: [torch.randn(16384, 8192), torch.randn(8192), torch.randn(16384, 8192)],  # for a GPU
    ]
