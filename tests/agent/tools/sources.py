"""A small softmax task and a candidate for it that is right, as texts."""

OP = '''"""Softmax over the last dimension."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(6, 70)]
'''

MODULE = '''"""One block a row."""

import torch
import torch.nn as nn

from kforge.kernel import Kernel

softmax_rows = Kernel(
    "softmax_rows",
    source="softmax_kforge.cu",
    grid="(rows, 1, 1)",
    block="(BLOCK, 1, 1)",
    constants={"BLOCK": 64},
    tune={"BLOCK": [32, 64, 128]},
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        return y
'''

SOURCE = r"""
extern "C" __global__ void softmax_rows(const float* x, float* y, int rows, int cols) {
    __shared__ float part[BLOCK];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    float m = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += BLOCK) {
        m = (in[i] > m || in[i] != in[i]) ? in[i] : m;
    }
    part[threadIdx.x] = m;
    __syncthreads();
    for (int step = BLOCK / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) {
            float other = part[threadIdx.x + step];
            float mine = part[threadIdx.x];
            part[threadIdx.x] = (other > mine || other != other) ? other : mine;
        }
        __syncthreads();
    }
    m = part[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += BLOCK) sum += expf(in[i] - m);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int step = BLOCK / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    sum = part[0];
    for (int i = threadIdx.x; i < cols; i += BLOCK) out[i] = expf(in[i] - m) / sum;
}
"""
