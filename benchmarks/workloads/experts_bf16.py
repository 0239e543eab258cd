"""The gated first layers of eight experts on 16384 sorted rows of 2048 features, bfloat16."""

import torch
from torch.nn import functional as F


def reference(x, gate, up, ends):
    return F.silu(torch._grouped_mm(x, gate, offs=ends)) * torch._grouped_mm(x, up, offs=ends)


def get_inputs():
    weights = (torch.randn(3, 32, 48, dtype=torch.bfloat16) for _ in range(2))
    return [torch.randn(24, 32, dtype=torch.bfloat16), *weights, torch.tensor([8, 8, 24], dtype=torch.int32)]


def get_input_variants():
    return [
        lambda: [
            torch.randn(16384, 2048, dtype=torch.bfloat16, device="cuda"),
            *(torch.randn(8, 2048, 4096, dtype=torch.bfloat16, device="cuda") / 45 for _ in range(2)),
            torch.arange(1, 9, dtype=torch.int32, device="cuda") * 2048,
        ]
    ]
