"""torch's own causal attention, 32 heads that share 8, gated: 4 batches, 4096 positions, 128 features, bfloat16."""

import torch
from torch.nn import functional as F


def reference(q, k, v, gate):
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return attended.transpose(1, 2).flatten(2) * torch.sigmoid(gate)


def get_inputs():
    heads = (torch.randn(2, h, 24, 16, dtype=torch.bfloat16) for h in (6, 2, 2))
    return [*heads, torch.randn(2, 24, 96, dtype=torch.bfloat16)]


def get_input_variants():
    return [
        lambda: [
            *(torch.randn(4, h, 4096, 128, dtype=torch.bfloat16, device="cuda") for h in (32, 8, 8)),
            torch.randn(4, 4096, 4096, dtype=torch.bfloat16, device="cuda"),
        ]
    ]
