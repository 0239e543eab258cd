"""Sum and maximum over the middle dimension: two reductions that eager mode makes in two reads."""

import torch


def reference(x):
    return x.sum(dim=1), x.amax(dim=1)


def get_inputs():
    return [torch.randn(2, 75, 132)]


def get_input_variants():
    return [
        lambda: [torch.randn(1, 700, 33)],  # few columns: shared by several blocks
        lambda: [torch.randn(3, 65, 136).half()],
        lambda: [torch.randn(16, 4096, 1024)],  # for a GPU
    ]
