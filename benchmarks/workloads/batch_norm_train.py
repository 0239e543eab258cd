"""Batch norm of images with the statistics of the batch; the running ones follow."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 64, 9, 12)]


def get_init_inputs():
    return [64]


def get_input_variants():
    return [lambda: [torch.randn(64, 64, 256, 256, device="cuda")]]
