"""A Helion kernel: the scaled sum of two vectors. Without a GPU it is run by Triton's interpreter."""

import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[1024]))
def scaled_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 0.5 * y[tile]
    return out


def get_inputs():
    return [torch.randn(10000), torch.randn(10000)]


def get_input_variants():
    return [lambda: [torch.randn(1 << 26), torch.randn(1 << 26)]]  # for a GPU
