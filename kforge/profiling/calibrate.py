"""Measures the ceilings of the GPU that is present (see ceilings.py, which owns the data and the cache)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kforge.profiling.ceilings import CALIBRATED, Ceilings

if TYPE_CHECKING:
    import torch


def calibrate(device: str = "cuda:0", driver: str = "") -> Ceilings:
    """Measure every ceiling of a GPU that is present. Each is the best of several ways, over its fastest of 15 runs.

    Buffers are far larger than the L2, so no flush is needed. Takes about 5 s and at most a quarter of free memory.
    """
    import torch

    from kforge.profiling.gpu_state import gpu_state

    properties = torch.cuda.get_device_properties(device)
    l2 = int(getattr(properties, "L2_cache_size", 0))
    with torch.cuda.device(device), torch.no_grad():
        bandwidth, methods = _bandwidth(torch.device(device))
        rates = _matrix_rates(torch.device(device))
        fp8 = _fp8_rate(torch.device(device))
        rates |= {"fp8": fp8} if fp8 else {}
        on_chip = _on_chip(torch.device(device), l2)
        rates["special"] = on_chip["special"]
        launch = _launch_time(torch.device(device))
        state = gpu_state(device)
        torch.cuda.empty_cache()
    clocks = {"sm_mhz": state.sm_mhz or 0, "memory_mhz": state.memory_mhz or 0}
    return Ceilings(
        properties.name, bandwidth, rates, l2, launch, CALIBRATED, driver, methods,
        l2=on_chip["l2"], shared=on_chip["shared"], processors=properties.multi_processor_count, clocks=clocks,
    )  # fmt: skip


def _fastest(run: Callable[[], object], repeats: int = 15) -> float:
    """Seconds of the fastest of `repeats` runs by device events, after two runs that warm up."""
    import torch

    for _ in range(2):
        run()
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        for _ in range(repeats)
    ]
    for start, end in pairs:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return min(start.elapsed_time(end) for start, end in pairs) * 1e-3


_READ_SOURCE = r"""
// Reads n float4 and writes one float per block: the rate of pure reading.
extern "C" __global__ void read_only(const float4* __restrict__ x, float* y, long long n) {
    float sum = 0.0f;
    long long stride = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < n; i += 4 * stride) {  // four loads in flight
        float4 a = __ldcs(x + i), b = __ldcs(x + i + stride);
        float4 c = __ldcs(x + i + 2 * stride), d = __ldcs(x + i + 3 * stride);
        sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w + c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
    }
    for (; i < n; i += stride) {
        float4 a = x[i];
        sum += a.x + a.y + a.z + a.w;
    }
    if (sum == 12345.678f) y[blockIdx.x] = sum;  // keeps the loads alive
}
"""


def _bandwidth(device: torch.device) -> tuple[dict[str, float], dict[str, str]]:
    import torch

    from kforge.kernel import Kernel

    free, _ = torch.cuda.mem_get_info(device)
    count = min(4 << 30, free // 16) // 4096 * 1024  # floats in one buffer: up to 4 GiB, about 1 ms to read
    a, b, c = (torch.rand(count, device=device) for _ in range(3))
    size = count * 4
    blocks = 8 * torch.cuda.get_device_properties(device).multi_processor_count
    sums = torch.zeros(blocks, device=device)
    read_only = Kernel("read_only", source=_READ_SOURCE, grid=f"({blocks}, 1, 1)", block="(512, 1, 1)")
    ways: dict[str, dict[str, tuple[int, Callable[[], object]]]] = {
        "read": {
            "kernel": (size, lambda: read_only(a, sums, count // 4)),
            "torch.sum": (size, lambda: torch.sum(a)),
            "torch.amax": (size, lambda: torch.amax(a)),
        },
        "two to one": {"torch.add": (3 * size, lambda: torch.add(a, b, out=c))},
        "copy": {
            "copy_": (2 * size, lambda: b.copy_(a)),
            "torch.neg": (2 * size, lambda: torch.neg(a, out=b)),
        },
        "write": {
            "fill_": (size, lambda: b.fill_(1.5)),
            "zero_": (size, lambda: b.zero_()),
        },
    }
    best: dict[str, float] = {}
    methods: dict[str, str] = {}
    for name, each in ways.items():
        rates = {way: traffic / _fastest(run) for way, (traffic, run) in each.items()}
        methods[name] = max(rates, key=lambda way: rates[way])
        best[name] = rates[methods[name]]
    return best, methods


def _matrix_rates(device: torch.device) -> dict[str, float]:
    """operations/s of torch.mm per precision, large and square; random data, since zeros run too fast."""
    import torch

    cases = {"fp64": (torch.float64, 4096), "fp32": (torch.float32, 8192), "tf32": (torch.float32, 8192)}
    cases |= {"bf16": (torch.bfloat16, 8192), "fp16": (torch.float16, 8192)}
    rates = {}
    before = torch.get_float32_matmul_precision()
    try:
        for kind, (dtype, n) in cases.items():
            torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
            x = torch.randn(n, n, device=device).to(dtype)
            y = torch.randn(n, n, device=device).to(dtype)
            out = torch.empty_like(x)
            rates[kind] = 2.0 * n**3 / _fastest(lambda x=x, y=y, out=out: torch.mm(x, y, out=out), repeats=8)  # type: ignore[misc]
    finally:
        torch.set_float32_matmul_precision(before)
    return rates


def _fp8_rate(device: torch.device) -> float | None:
    """operations/s of products of fp8 (e4m3), accumulated fast; None where torch has none for this GPU."""
    import torch

    n = 8192
    one = torch.ones((), device=device)
    try:
        x = torch.randn(n, n, device=device).to(torch.float8_e4m3fn)
        y = torch.randn(n, n, device=device).to(torch.float8_e4m3fn).t()

        def run() -> object:
            return torch._scaled_mm(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

        return 2.0 * n**3 / _fastest(run, repeats=8)
    except (RuntimeError, AttributeError):  # before sm_89, or a torch without it
        return None


_ON_CHIP_SOURCE = r"""
// Rates inside the chip. Every thread works on its own; the sums keep the work alive.
extern "C" __global__ void read_l2(const float4* __restrict__ x, float* y, int n, int rounds) {
    float sum = 0.0f;
    int stride = gridDim.x * blockDim.x;
    for (int r = 0; r < rounds; ++r) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        for (; i + 3 * stride < n; i += 4 * stride) {  // __ldcg: not from the L1
            float4 a = __ldcg(x + i), b = __ldcg(x + i + stride);
            float4 c = __ldcg(x + i + 2 * stride), d = __ldcg(x + i + 3 * stride);
            sum += a.x + b.y + c.z + d.w;
        }
    }
    if (sum == 12345.678f) y[blockIdx.x] = sum;
}

extern "C" __global__ void read_shared(float* y, int rounds) {
    __shared__ float4 tile[1024];
    tile[threadIdx.x] = make_float4(threadIdx.x, 1.0f, 2.0f, 3.0f);
    __syncthreads();
    float sum = 0.0f;
    for (int r = 0; r < rounds; r += 4) {
        float4 a = tile[(threadIdx.x + 32 * r) & 1023], b = tile[(threadIdx.x + 32 * r + 32) & 1023];
        float4 c = tile[(threadIdx.x + 32 * r + 64) & 1023], d = tile[(threadIdx.x + 32 * r + 96) & 1023];
        sum += a.x + b.y + c.z + d.w + a.y + b.z + c.w + d.x + a.z + b.w + c.x + d.y + a.w + b.x + c.y + d.z;
    }
    if (sum == 12345.678f) y[blockIdx.x] = sum;
}

extern "C" __global__ void exponentials(float* y, int rounds) {
    float a = threadIdx.x * 1e-3f, b = a + 0.1f, c = a + 0.2f, d = a + 0.3f;
    for (int r = 0; r < rounds; ++r) {
        asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(a));
        asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(b));
        asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(c));
        asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(d));
    }
    if (a + b + c + d == 12345.678f) y[blockIdx.x] = a;
}
"""


def _on_chip(device: torch.device, l2_bytes: int) -> dict[str, float]:
    """bytes/s from the L2 (a quarter of it, read over and over) and from shared memory; special functions/s."""
    import torch

    from kforge.kernel import Module

    blocks = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    module = Module(_ON_CHIP_SOURCE)
    read_l2, read_shared, exponentials = (
        module.kernel(name, grid=f"({blocks}, 1, 1)", block="(1024, 1, 1)")
        for name in ("read_l2", "read_shared", "exponentials")
    )
    out = torch.zeros(blocks, device=device)
    step = 4 * blocks * 1024  # vectors that all threads read at a time
    count = max(1, (l2_bytes or 32 << 20) // 4 // 16 // step) * step
    x = torch.rand(count * 4, device=device)
    seconds = {
        "l2": _fastest(lambda: read_l2(x, out, count, 32)),
        "shared": _fastest(lambda: read_shared(out, 8192)),
        "special": _fastest(lambda: exponentials(out, 4096)),
    }
    amount = {"l2": 32.0 * count * 16, "shared": 8192.0 * 16 * blocks * 1024, "special": 4096.0 * 4 * blocks * 1024}
    return {name: amount[name] / seconds[name] for name in seconds}


def _launch_time(device: torch.device) -> float:
    """Seconds one smallest kernel takes in a captured graph of 200."""
    import torch

    x = torch.zeros(1, device=device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        x.add_(1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(200):
                x.add_(1)
    return _fastest(graph.replay) / 200
