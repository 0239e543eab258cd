"""Causal depthwise convolution from shared memory, for any length and up to 2,048 taps."""

import torch
from torch import nn

from kforge.kernel import Kernel

MOST_TAPS = 2048  # one level of sums takes at most 64 parts of 32 products

causal_filter = Kernel(
    "causal_filter<BLOCK>",
    source="causal_filter_kforge.cu",
    grid="rows * ceil_div(length, 4 * BLOCK)",
    block="BLOCK",
    shared="(4 * BLOCK + taps + 8) * 4 + taps * 4",
    constants={"BLOCK": 256},
    tune={"BLOCK": [64, 128, 256]},
    tuned=[("length <= 256", {"BLOCK": 64}), ("length <= 512", {"BLOCK": 128}), (True, {"BLOCK": 256})],
)


class ModelNew(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, taps) / taps**0.5)

    def forward(self, x):
        channels, taps = self.weight.shape
        if x.dim() != 3 or x.size(1) != channels or taps > MOST_TAPS or x.dtype != torch.float32:
            raise ValueError(f"float32 (batch, {channels}, length) and at most {MOST_TAPS} taps are needed")
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, _, length = x.shape
        causal_filter(x, self.weight, y, batch * channels, channels, length, taps)
        return y
