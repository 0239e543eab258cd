"""A task that scales its input and the candidate for it: what tests of commands and of workers judge."""

from __future__ import annotations


def task(formula: str, shape: tuple[int, int], before: str = "") -> str:
    """op.py, with a Model of this formula of x and these normal inputs. before: lines above the class."""
    return f"""
import torch
from torch import nn
{before}


class Model(nn.Module):
    def forward(self, x):
        return {formula}


def get_inputs():
    return [torch.randn{shape}]
"""


def module(block: int = 64, before: str = "") -> str:
    """scale_kforge.py, with so many threads a block. before: lines above the kernel."""
    return f"""
import torch
from torch import nn
from kforge.kernel import Kernel

{before}
scale = Kernel("scale", source="scale_kforge.cu", grid="(ceil_div(n, {block}), 1, 1)", block="({block}, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scale(x, y, x.numel())
        return y
"""


def kernel(formula: str = "x[i] * 2.0f") -> str:
    """scale_kforge.cu."""
    return f"""
extern "C" __global__ void scale(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = {formula};
}}
"""
