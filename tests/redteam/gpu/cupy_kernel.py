# task: pointwise
# plan: quick
# status: verified
# fires: 
# honest: yes
# module: cupy
"""Honest: a CuPy RawKernel on torch's memory and stream."""

import cupy
import numpy
import torch
from torch import nn

SOURCE = """
extern "C" __global__ void gelu2(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] * normcdff(x[i]) * 2.0f + x[i];
}
"""
kernel = cupy.RawKernel(SOURCE, "gelu2")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                given_to = (numpy.uint64(x.data_ptr()), numpy.uint64(y.data_ptr()), numpy.int64(x.numel()))
                kernel(((x.numel() + 255) // 256,), (256,), given_to)
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
