"""Hand-written candidates for the tasks beside this file: a right one of each, and pieces to make wrong ones from."""

from __future__ import annotations

from kforge.kernel.candidate import Candidate

SOFTMAX_CU = """
extern "C" __global__ void softmax_rows(const float* x, float* y, int rows, int cols) {
    __shared__ float part[64];
    int row = blockIdx.x, t = threadIdx.x;
    const float* in = x + (long long)row * cols;
    float* out = y + (long long)row * cols;
    float m = -INFINITY;
    for (int c = t; c < cols; c += 64) m = (in[c] > m || isnan(in[c])) ? in[c] : m;
    part[t] = m;
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (t < s) part[t] = (part[t + s] > part[t] || isnan(part[t + s])) ? part[t + s] : part[t];
        __syncthreads();
    }
    m = part[0];
    __syncthreads();
    float sum = 0.f;
    for (int c = t; c < cols; c += 64) sum += expf(in[c] - m);
    part[t] = sum;
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    sum = part[0];
    for (int c = t; c < cols; c += 64) out[c] = expf(in[c] - m) / sum;
}
"""

SOFTMAX_PY = """
import torch
from torch import nn
from kforge.kernel import Kernel

softmax_rows = Kernel("softmax_rows", source="softmax_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows(x, y, x.size(0), x.size(1))
        return y
"""

AFFINE_CU = """
extern "C" __global__ void affine(const float* x, const float* scale, const float* shift, float* y, int n, int width) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) {
        float v = x[i] * scale[i % width] + shift[i % width];
        y[i] = v < 0.f ? 0.f : v;
    }
}
"""

AFFINE_PY = """
import torch
from torch import nn
from kforge.kernel import Kernel

affine = Kernel("affine", source="affine_kforge.cu", grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        affine(x, self.scale, self.shift, y, x.numel(), x.size(-1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
"""

ARGMAX_CU = """
extern "C" __global__ void argmax_rows(const float* x, long long* index, bool* above, int rows, int cols) {
    int row = blockIdx.x * 32 + threadIdx.x;
    if (row >= rows) return;
    int best = 0;
    for (int c = 0; c < cols; c++) {
        float v = x[(long long)row * cols + c], top = x[(long long)row * cols + best];
        if (v > top || (isnan(v) && !isnan(top))) best = c;
        above[(long long)row * cols + c] = v > 0.5f;
    }
    index[row] = best;
}
"""

ARGMAX_PY = """
import torch
from torch import nn
from kforge.kernel import Kernel

argmax_rows = Kernel("argmax_rows", source="argmax_kforge.cu", grid="(ceil_div(rows, 32), 1, 1)", block="(32, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        index = torch.empty(x.size(0), dtype=torch.long, device=x.device)
        above = torch.empty_like(x, dtype=torch.bool)
        argmax_rows(x, index, above, x.size(0), x.size(1))
        return index, above if given.is_contiguous() else torch.empty_like(given, dtype=torch.bool).copy_(above)
"""

ACCUMULATE_CU = """
extern "C" __global__ void accumulate(
    float* total, const float* x, int rows, int cols, int t0, int t1, int x0, int x1) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= rows * cols) return;
    int r = i / cols, c = i % cols;
    total[(long long)r * t0 + c * t1] += x[(long long)r * x0 + c * x1];
}
"""

ACCUMULATE_PY = """
import torch
from torch import nn
from kforge.kernel import Kernel

accumulate = Kernel(
    "accumulate", source="accumulate_kforge.cu", grid="(ceil_div(rows * cols, 64), 1, 1)", block="(64, 1, 1)",
    strided=("total", "x"),
)


class ModelNew(nn.Module):
    def forward(self, total, x):
        accumulate(
            total, x, x.size(0), x.size(1), total.stride(0), total.stride(1), x.stride(0), x.stride(1)
        )
        return total
"""

RUNNING_CU = """
extern "C" __global__ void running(const float* x, float* mean, float* y, int rows, int cols) {
    int c = blockIdx.x * 32 + threadIdx.x;
    if (c >= cols) return;
    float sum = 0.f;
    for (int r = 0; r < rows; r += 8) {
        float part = 0.f;
        for (int i = r; i < min(r + 8, rows); i++) part += x[i * cols + c];
        sum += part;
    }
    float m = mean[c] * 0.9f + 0.1f * (sum / rows);
    mean[c] = m;
    for (int r = 0; r < rows; r++) y[r * cols + c] = x[r * cols + c] - m;
}
"""

RUNNING_PY = """
import torch
from torch import nn
from kforge.kernel import Kernel

running = Kernel("running", source="running_kforge.cu", grid="(ceil_div(cols, 32), 1, 1)", block="(32, 1, 1)")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(64))

    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        running(x, self.running_mean, y, x.size(0), x.size(1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
"""

TOTAL_CU = """
extern "C" __global__ void total(const float* x, float* y, int rows, int cols) {
    int c = blockIdx.x * 32 + threadIdx.x;
    if (c >= cols) return;
    float sum = 0.f;
    for (int r = 0; r < rows; r += 8) {
        float part = 0.f;
        for (int i = r; i < min(r + 8, rows); i++) part += x[i * cols + c];
        sum += part;
    }
    y[c] = sum;
}
"""

TOTAL_PY = """
import torch
from torch import nn
from kforge.kernel import Kernel

total = Kernel("total", source="total_kforge.cu", grid="(ceil_div(cols, 32), 1, 1)", block="(32, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.size(1), dtype=x.dtype, device=x.device)
        total(x, y, x.size(0), x.size(1))
        return y
"""

SOURCES = {
    "softmax": (SOFTMAX_PY, SOFTMAX_CU),
    "affine": (AFFINE_PY, AFFINE_CU),
    "argmax": (ARGMAX_PY, ARGMAX_CU),
    "accumulate": (ACCUMULATE_PY, ACCUMULATE_CU),
    "running": (RUNNING_PY, RUNNING_CU),
    "total": (TOTAL_PY, TOTAL_CU),
}


def candidate(task: str, *changes: tuple[str, str]) -> Candidate:
    """The right candidate for a task, with these (old, new) replacements made in whichever file holds the old text."""
    python, cuda = SOURCES[task]
    for old, new in changes:
        assert (old in python) != (old in cuda), f"{old!r} must be in exactly one of the two files"
        python, cuda = python.replace(old, new), cuda.replace(old, new)
    return Candidate(f"{task}_kforge.py", {f"{task}_kforge.py": python, f"{task}_kforge.cu": cuda})
