"""Attention in bfloat16 with a slope for each head on the distance: 8 batches of 16 heads, 2048 positions."""

import torch


def reference(q, k, v, slopes):
    place = torch.arange(q.shape[-2], device=q.device)
    distance = (place[None, :] - place[:, None]).abs()
    score = q @ k.transpose(-2, -1) * 0.125 - slopes[:, None, None] * distance
    return torch.softmax(score, dim=-1) @ v


def get_inputs():
    return [*(torch.randn(2, 3, 20, 16, dtype=torch.bfloat16) for _ in range(3)), torch.rand(3, dtype=torch.bfloat16)]


def get_input_variants():
    return [
        lambda: [
            *(torch.randn(8, 16, 2048, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3)),
            torch.rand(16, dtype=torch.bfloat16, device="cuda"),
        ]
    ]
