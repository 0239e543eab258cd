"""Host cost of a repeated Kernel call, by launcher: python benchmarks/kernel_call.py [--calls N]. Needs a GPU.

Prints one JSON line. `us` is the median over rounds of the host time per call of a kernel with three tensors, two ints
and a float, its checks included; the kernel is one small block, and the queue is drained between rounds of 200 calls,
so that the host never waits for the GPU. `new_shape_us` is a first call at another shape; `add_us` a torch.add.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable

import torch

from kforge.kernel import Kernel
from kforge.kernel import launchers as registry

SOURCE = """\
extern "C" __global__ void touch(const float* x, const float* w, float* y, int rows, int cols, float eps) {
    if (threadIdx.x < cols) y[threadIdx.x] = x[threadIdx.x] * w[threadIdx.x] + eps;
}
"""
CALLS_A_ROUND = 200  # below the launch queue's depth of 1024


def microseconds(call: Callable[[int], object], rounds: int) -> float:
    """Median host time per call."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(CALLS_A_ROUND):
            call(i)
        times.append((time.perf_counter() - start) / CALLS_A_ROUND * 1e6)
    return statistics.median(times)


def measure(name: str, rounds: int) -> dict[str, float]:
    """One launcher's figures."""
    os.environ["KFORGE_LAUNCHER"] = name
    kernel = Kernel(
        "touch",
        SOURCE,
        grid="(rows, 1, 1)",
        block=32,
        constants={"VEC": 4},
        tune={"VEC": [4, 1]},
        require={"VEC": "aligned(x, 4 * VEC) and cols % VEC == 0"},
    )
    x, w, y = torch.randn(4, 32, device="cuda"), torch.randn(32, device="cuda"), torch.empty(4, 32, device="cuda")
    kernel(x, w, y, 4, 32, 1e-5)
    return {
        "us": microseconds(lambda i: kernel(x, w, y, 4, 32, 1e-5), rounds),
        "new_shape_us": microseconds(lambda i: kernel(x, w, y, 5 + i, 32, 1e-5), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    rounds = max(1, parser.parse_args().calls // CALLS_A_ROUND)
    x, y = torch.randn(4, 32, device="cuda"), torch.empty(4, 32, device="cuda")
    with torch.no_grad():
        by_launcher = {name: measure(name, rounds) for name, (usable, _) in registry.launchers().items() if usable}
        add = microseconds(lambda i: torch.add(x, x, out=y), rounds)
    best = min(by_launcher, key=lambda name: by_launcher[name]["us"])
    result = {
        "benchmark": "kernel_call",
        "us": round(by_launcher[best]["us"], 2),
        "launcher": best,
        "by_launcher": {n: {k: round(v, 2) for k, v in f.items()} for n, f in by_launcher.items()},
        "add_us": round(add, 2),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
