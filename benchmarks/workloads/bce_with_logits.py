"""Binary cross entropy of logits, with a weight of the positive class for each column."""

import torch
import torch.nn.functional as F


def reference(x, y, w):
    return F.binary_cross_entropy_with_logits(x, y, pos_weight=w)


def get_inputs():
    return [torch.randn(64, 1000), torch.rand(64, 1000), torch.rand(1000) + 0.5]


def get_input_variants():
    return [
        lambda: [
            torch.randn(16384, 16384, device="cuda"),
            torch.rand(16384, 16384, device="cuda"),
            torch.rand(16384, device="cuda") + 0.5,
        ],
    ]
