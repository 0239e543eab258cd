"""A linear layer with GELU and a residual in one kernel: a product on Hopper's tensor cores, fed by tensor copies."""

import torch
from torch import nn

from kforge.kernel import Kernel, TensorMap

linear_product = Kernel(
    "linear_product<T, BN, STAGES, CLUSTER, TURNS, GROUP, VEC, AHEAD>",
    source="linear_kforge.cu",
    grid="min(ceil_div(rows, 128 * CLUSTER) * ceil_div(cols, BN), processors // CLUSTER) * CLUSTER",
    block="384",
    shared="STAGES * (128 + BN) * 128 + 21504",
    cluster="CLUSTER",
    constants={"BN": 128, "STAGES": 4, "CLUSTER": 1, "TURNS": 1, "GROUP": 8, "VEC": 8, "AHEAD": 2},
    types={"T": "left"},
    tune={
        "BN": [256, 128],
        "STAGES": [6, 5, 4, 3],
        "CLUSTER": [1, 2],
        "TURNS": [1, 2],
        "GROUP": [16, 8, 4],
        "VEC": [8, 4, 2, 1],
        "AHEAD": [2, 3, 4],
    },
    require={
        "STAGES": "STAGES * (128 + BN) * 128 + 21504 <= 232448",
        "TURNS": "TURNS * BN <= 256",
        "VEC": (
            "VEC * sizeof(T) <= 16 and aligned(bias, VEC * sizeof(T)) and "
            "aligned(residual, VEC * sizeof(T)) and aligned(y, VEC * sizeof(T)) and cols % VEC == 0"
        ),
    },
)


def processors(x):
    """How many blocks share the tiles: one a multiprocessor."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4


def tensor_map(x, lines, *shape):
    """x in this shape, to be copied by tiles of `lines` x 64; padded where its lines are not 16 bytes aligned."""
    if 0 in shape:
        shape = (*(1 for _ in shape[1:]), 8)
        x = x.new_zeros(shape)
    x = x.view(shape)
    if shape[-1] % 8 or x.data_ptr() % 16:
        padded = x.new_empty(*shape[:-1], -(-shape[-1] // 8) * 8)[..., : shape[-1]]
        x = padded.copy_(x)
    return TensorMap(x, (*(1 for _ in shape[2:]), lines, 64), swizzle=128, l2=256)


class ModelNew(nn.Module):
    def forward(self, x, weight, bias, residual):
        if x.dim() != 2:
            raise ValueError(f"these kernels need x with 2 dimensions; it has shape {tuple(x.shape)}")
        if weight.dim() != 2:
            raise ValueError(f"these kernels need weight with 2 dimensions; it has shape {tuple(weight.shape)}")
        if weight.shape[-1] != x.shape[-1]:
            raise ValueError(
                "these kernels need weight.shape[-1] == x.shape[-1]; "
                f"weight has shape {tuple(weight.shape)}, x has shape {tuple(x.shape)}"
            )
        if bias.shape != (weight.shape[0],):
            raise ValueError(
                "these kernels need bias.shape == (weight.shape[0],); "
                f"bias has shape {tuple(bias.shape)}, weight has shape {tuple(weight.shape)}"
            )
        if residual.shape != (x.shape[0], weight.shape[0]):
            raise ValueError(
                "these kernels need residual.shape == (x.shape[0], weight.shape[0]); "
                f"residual has shape {tuple(residual.shape)}, x has shape {tuple(x.shape)}"
            )
        if x.dtype != torch.bfloat16:
            raise TypeError(f"these kernels need x as torch.bfloat16; x is {x.dtype}")
        if weight.dtype != torch.bfloat16:
            raise TypeError(f"these kernels need weight as torch.bfloat16; weight is {weight.dtype}")
        if bias.dtype != torch.bfloat16:
            raise TypeError(f"these kernels need bias as torch.bfloat16; bias is {bias.dtype}")
        if residual.dtype != torch.bfloat16:
            raise TypeError(f"these kernels need residual as torch.bfloat16; residual is {residual.dtype}")
        x = x.contiguous()
        weight = weight.contiguous()
        bias = bias.contiguous()
        residual = residual.contiguous()
        cols = weight.shape[0]
        depth = x.shape[-1]
        rows = x.shape[0]
        y = torch.empty_like(residual)
        linear_product(
            tensor_map(x, 128, rows, depth),
            tensor_map(weight, 64, cols, depth),
            bias,
            residual,
            y,
            rows,
            cols,
            depth,
            processors(x),
        )
        return y
