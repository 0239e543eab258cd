"""A Triton kernel with its launching function: the scaled sum of two tensors. Without a GPU it is interpreted."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + scale * y, mask=inside)


def scaled_add(x, y, scale=0.5):
    out = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, scale, n, BLOCK=1024)
    return out


def get_inputs():
    return [torch.randn(10000), torch.randn(10000)]


def get_input_variants():
    return [lambda: [torch.randn(1 << 26), torch.randn(1 << 26)]]  # for a GPU
