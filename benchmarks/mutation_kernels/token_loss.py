"""Cross entropy of logits against class indices, one loss a row."""

import torch


def reference(logits, target):
    return torch.nn.functional.cross_entropy(logits, target, reduction="none")


def get_inputs():
    return [torch.randn(36, 201), torch.randint(0, 201, (36,))]
