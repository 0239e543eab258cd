"""Times the emulator on a block-reduction softmax of 1024 x 4096 floats and a pointwise kernel; prints a JSON line.

Run: python benchmarks/emulator_softmax.py. The goal is 3 s for the softmax on two cores. `cold` figures build in an
empty cache: runtime, precompiled prelude and kernel together, then kernels alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import statistics
import tempfile
import time

import numpy as np

ROWS, COLS = 1024, 4096
SOURCE = r"""
#include <cuda_runtime.h>
__device__ __forceinline__ float block_reduce(float v, bool maximum) {
  __shared__ float part[32];
  for (int o = 16; o > 0; o >>= 1) {
    float w = __shfl_xor_sync(0xffffffffu, v, o);
    v = maximum ? fmaxf(v, w) : v + w;
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  v = part[0];
  for (int i = 1; i < blockDim.x / 32; i++) v = maximum ? fmaxf(v, part[i]) : v + part[i];
  return v;
}
extern "C" __global__ void __launch_bounds__(256)
softmax(const float* __restrict__ x, float* __restrict__ y, int cols) {
  const float4* row = reinterpret_cast<const float4*>(x + (size_t)blockIdx.x * cols);
  float4* out = reinterpret_cast<float4*>(y + (size_t)blockIdx.x * cols);
  float m = -INFINITY, s = 0.f;
  for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
    float4 v = row[i];
    m = fmaxf(m, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
  }
  m = block_reduce(m, true);
  for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
    float4 v = row[i];
    s += (__expf(v.x - m) + __expf(v.y - m)) + (__expf(v.z - m) + __expf(v.w - m));
  }
  float scale = 1.f / block_reduce(s, false);
  for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
    float4 v = row[i];
    float4 e = make_float4(__expf(v.x - m), __expf(v.y - m), __expf(v.z - m), __expf(v.w - m));
    out[i] = make_float4(e.x * scale, e.y * scale, e.z * scale, e.w * scale);
  }
}
extern "C" __global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.f * x[i];
}
"""


def main() -> None:
    """Builds in an empty cache, checks the values, times, prints."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KFORGE_CACHE"] = cache
        from kforge.kernel.emulator import load
        from kforge.kernel.emulator.mode import worker_threads

        start = time.perf_counter()
        program = load(SOURCE, "softmax.cu", ["softmax", "twice"])
        first_build = time.perf_counter() - start
        builds = []
        for k in range(5):
            start = time.perf_counter()
            load(f"{SOURCE}// {k}\n", "softmax.cu", ["softmax", "twice"])
            builds.append(time.perf_counter() - start)

        x = np.random.default_rng(0).standard_normal((ROWS, COLS), dtype=np.float32)
        y = np.empty_like(x)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]

        def seconds(kernel: str, grid: int, size: int, order: int = 0) -> float:
            times = []
            for _ in range(5):
                start = time.perf_counter()
                program.launch(kernel, (grid, 1, 1), (256, 1, 1), 0, [*pointers, ctypes.c_int(size)], order=order)
                times.append(time.perf_counter() - start)
            return statistics.median(times)

        softmax = {f"order_{o}": round(seconds("softmax", ROWS, COLS, o), 4) for o in range(4)}
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        error = float(np.abs(y - e / e.sum(1, keepdims=True)).max())
        assert error < 1e-7, error
        pointwise = seconds("twice", ROWS * COLS // 256, ROWS * COLS)
        assert np.array_equal(y, 2 * x)
        print(json.dumps({
            "benchmark": "emulator_softmax", "rows": ROWS, "cols": COLS, "softmax_seconds": softmax, "max_error": error,
            "pointwise_seconds": round(pointwise, 4), "first_build_seconds": round(first_build, 2),
            "build_seconds": round(statistics.median(builds), 3), "threads": worker_threads(),
            "machine": platform.processor() or platform.machine(), "python": platform.python_version(),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
