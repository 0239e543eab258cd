"""A linear layer in half precision whose weights are packed in four bits with a scale for each 128 of a row."""

import torch
from torch.nn import functional as F


def reference(x, packed, scale):
    rows, groups = scale.shape
    low, high = (packed & 15).to(torch.int8) - 8, (packed >> 4).to(torch.int8) - 8
    weight = torch.stack((low, high), dim=-1).view(rows, groups, -1).half() * scale[..., None]
    return F.linear(x, weight.view(rows, -1))


def get_inputs():
    return [
        torch.randn(24, 64, dtype=torch.float16),
        torch.randint(0, 256, (48, 32), dtype=torch.uint8),
        torch.rand(48, 4).half() / 8,
    ]


def get_input_variants():
    return [
        lambda: [
            torch.randn(2048, 4096, dtype=torch.float16, device="cuda"),
            torch.randint(0, 256, (4096, 2048), dtype=torch.uint8, device="cuda"),
            torch.rand(4096, 32, device="cuda").half() / 8,
        ]
    ]
