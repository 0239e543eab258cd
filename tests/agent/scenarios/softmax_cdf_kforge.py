"""Softmax and its running sum in one kernel: one block a row."""

import torch
import torch.nn as nn

from kforge.kernel import Kernel

softmax_cdf = Kernel(
    "softmax_cdf",
    source="softmax_cdf_kforge.cu",
    grid="rows",
    block="BLOCK",
    constants={"BLOCK": 128},
    tune={"BLOCK": [64, 128, 256]},
)


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.contiguous()
        y = torch.empty_like(rows)
        if rows.numel():
            softmax_cdf(rows, y, rows.numel() // rows.size(-1), rows.size(-1))
        return y
