"""The last two dimensions exchanged, into contiguous memory."""

import torch


def reference(x):
    return x.transpose(-2, -1).clone(memory_format=torch.contiguous_format)


def get_inputs():
    return [torch.randn(3, 70, 46)]


def get_input_variants():
    return [
        lambda: [torch.randn(131, 66).half()],
        lambda: [torch.randint(0, 255, (2, 33, 65), dtype=torch.uint8)],
        lambda: [torch.randn(64, 4096, 4096)],  # for a GPU
    ]
