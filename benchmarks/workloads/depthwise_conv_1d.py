"""A causal filter of four taps for each channel, with bias and SiLU, as in state space models; bfloat16."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.filter = nn.Conv1d(channels, channels, 4, groups=channels, padding=3).bfloat16()

    def forward(self, x):
        return F.silu(self.filter(x)[..., : x.shape[-1]])


def get_init_inputs():
    return [256]


def get_inputs():
    return [torch.randn(2, 256, 64, dtype=torch.bfloat16)]


def get_input_variants():
    return [lambda: [torch.randn(128, 256, 16384, dtype=torch.bfloat16, device="cuda")]]
