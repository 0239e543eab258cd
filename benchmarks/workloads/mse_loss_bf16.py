"""Mean squared error of bfloat16 tensors of an odd width."""

import torch
import torch.nn.functional as F


def reference(x, y):
    return F.mse_loss(x, y)


def get_inputs():
    return [torch.rand(64, 1001).bfloat16(), torch.rand(64, 1001).bfloat16()]


def get_input_variants():
    return [
        lambda: [
            torch.rand(32768, 32767, device="cuda").bfloat16(),
            torch.rand(32768, 32767, device="cuda").bfloat16(),
        ],
    ]
