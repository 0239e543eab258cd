# task: pointwise
# plan: quick
# status: verified
# fires: 
# honest: yes
# module: pycuda
"""Honest: a PyCUDA SourceModule in torch's context."""

import numpy
import pycuda.autoprimaryctx
import torch
from pycuda.compiler import SourceModule
from torch import nn

SOURCE = """
extern "C" __global__ void gelu2(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] * normcdff(x[i]) * 2.0f + x[i];
}
"""
kernel = SourceModule(SOURCE, no_extern_c=True).get_function("gelu2")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            blocks = (x.numel() + 255) // 256
            kernel(numpy.uint64(x.data_ptr()), numpy.uint64(y.data_ptr()), numpy.int64(x.numel()), block=(256, 1, 1), grid=(blocks, 1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
