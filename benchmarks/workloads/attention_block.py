"""A block of causal attention in single precision: one projection for all three, a stored mask, merged heads."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, heads, most):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(features, 3 * features, bias=False)
        self.merge = nn.Linear(features, features)
        self.register_buffer("mask", torch.tril(torch.ones(most, most)).view(1, 1, most, most))

    def forward(self, x):
        batch, size, features = x.shape
        split = self.project(x).split(features, dim=2)
        q, k, v = (t.view(batch, size, self.heads, features // self.heads).transpose(1, 2) for t in split)
        score = q @ k.transpose(-2, -1) * (features // self.heads) ** -0.5
        score = score.masked_fill(self.mask[:, :, :size, :size] == 0, float("-inf"))
        attended = torch.softmax(score, dim=-1) @ v
        return self.merge(attended.transpose(1, 2).contiguous().view(batch, size, features))


def get_init_inputs():
    return [768, 8, 1024]


def get_inputs():
    return [torch.randn(1, 32, 768)]


def get_input_variants():
    return [lambda: [torch.randn(64, 512, 768, device="cuda")]]
