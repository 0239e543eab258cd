"""Counts of classes a row by private counters in shared memory; deterministic, for any number of bins."""

import torch
from torch import nn

from kforge.kernel import Kernel

SHARE = 4096  # ids of one block, as in constants below

histogram = Kernel(
    "histogram<VEC, COPIES, BLOCK, SHARE>",
    source="histogram_kforge.cu",
    grid="rows * chunks",
    block="BLOCK",
    shared="bins * COPIES * 4",
    constants={"VEC": 2, "COPIES": 8, "BLOCK": 256, "SHARE": 4096},
    tune={"VEC": [2, 1], "COPIES": [8, 4, 2, 1, 0], "BLOCK": [128, 256, 512]},
    require={
        "VEC": "n % VEC == 0 and aligned(ids, 8 * VEC)",
        "COPIES": "bins * COPIES * 4 <= 49152",  # 0 always holds: additions in global memory
    },
)


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, ids):
        if ids.dim() == 0 or ids.dtype != torch.int64:
            raise TypeError(f"int64 ids with at least one dimension are needed, not {ids.dtype}")
        ids = ids.contiguous()
        n = ids.size(-1)
        counts = torch.zeros((*ids.shape[:-1], self.bins), dtype=torch.int64, device=ids.device)
        if ids.numel() > 0:
            histogram(ids, counts, ids.numel() // n, n, self.bins, -(-n // SHARE))
        return counts
