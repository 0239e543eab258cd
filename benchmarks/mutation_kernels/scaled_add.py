"""Two tensors added with a scale; vectors where alignment and length allow them."""

import torch


def reference(x, y):
    return x + 0.5 * y, x - y


def get_inputs():
    return [torch.randn(33, 64), torch.randn(33, 64)]
