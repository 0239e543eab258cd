"""Counts of values in 32 equal bins of [-4, 4); values outside are counted in the first and last bin."""

import torch

BINS = 32


def reference(x):
    place = torch.floor((x + 4.0) * 4.0).clamp(0.0, BINS - 1.0).long()
    return torch.nn.functional.one_hot(place.flatten(), BINS).sum(dim=0).float()


def get_inputs():
    return [torch.randn(3001)]
