"""Host cost of a repeated Kernel call: python benchmarks/kernel_call.py [--calls N]. Needs a GPU.

Prints one JSON line. `us` is the median over rounds of the host time per call of a kernel with three tensors, two ints
and a float, its checks included; the kernel is one small block, and the queue is drained between rounds of 200 calls,
so that the host never waits for the GPU. `by_path`: the driver's launcher with the native call and without it, and
CuPy's and cuda.core's. `new_shape_us` is a first call at another shape; `add_us` a torch.add on the same host.
`split_us` takes the driver's calls apart: `driver` is what cuLaunchKernelEx itself takes (the difference to a call
that starts nothing), `arguments` reading and checking the tensors, `rest` all else.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import time
from collections.abc import Callable

import torch

from kforge.kernel import Kernel, native
from kforge.kernel import launchers as registry
from kforge.kernel.arguments import check_arguments
from kforge.kernel.launchers.driver import Config
from kforge.kernel.plan import Plan, _slots, bind_native

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


class Calls:
    """A kernel and its arguments, called through one launcher, with the native call or without."""

    def __init__(self, launcher: str, path: str) -> None:
        os.environ["KFORGE_LAUNCHER"] = launcher
        os.environ["KFORGE_NATIVE"] = "1" if path == "native" else "0"
        native.load.cache_clear()
        self.kernel = Kernel(
            "touch",
            SOURCE,
            grid="(rows, 1, 1)",
            block=32,
            constants={"VEC": 4},
            tune={"VEC": [4, 1]},
            require={"VEC": "aligned(x, 4 * VEC) and cols % VEC == 0"},
        )
        x, w, y = torch.randn(4, 32, device="cuda"), torch.randn(32, device="cuda"), torch.empty(4, 32, device="cuda")
        self.args = (x, w, y, 4, 32, 1e-5)
        self.kernel(*self.args)
        if (self.kernel._native is not None) != (path == "native"):
            raise SystemExit(f"no native call: {native.load()[1]}")

    def measure(self, rounds: int) -> dict[str, float]:
        """The path's figures."""
        kernel, (x, w, y, *_) = self.kernel, self.args
        return {
            "us": microseconds(lambda i: kernel(x, w, y, 4, 32, 1e-5), rounds),
            "new_shape_us": microseconds(lambda i: kernel(x, w, y, 5 + i, 32, 1e-5), 1),
        }

    def split(self, rounds: int) -> dict[str, float]:
        """Where the time of a call goes. Leaves the kernel without a launch."""
        kernel, args = self.kernel, self.args
        whole = microseconds(lambda i: kernel(*args), rounds)
        (plan,) = [p for p in kernel._plans.values() if isinstance(p, Plan) and p.geometry.grid[0] == 4]
        if kernel._native is None:
            values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in args]
            stream, launch = torch.cuda.current_stream().cuda_stream, plan.launch
            assert launch is not None
            start = microseconds(lambda i: launch(stream, values), rounds)
            plan.launch = lambda stream, values: None
            return {
                "whole": whole,
                "struct, ctypes and driver": start,
                "rest": microseconds(lambda i: kernel(*args), rounds),
            }
        key_of = kernel._native_key
        assert key_of is not None
        arguments = microseconds(lambda i: key_of(args), rounds)
        # pthread_equal(configuration, function) answers 0, as a launch that succeeded does
        nothing = ctypes.cast(ctypes.CDLL(None).pthread_equal, ctypes.c_void_p).value or 0
        slots = _slots(kernel.definition, check_arguments(kernel.definition, args))
        bind_native(plan, kernel.definition, slots, nothing, ctypes.c_void_p(1), Config())
        kernel._plans[key_of(args)] = plan.native
        idle = microseconds(lambda i: kernel(*args), rounds)
        return {"whole": whole, "driver": whole - idle, "arguments": arguments, "rest": idle - arguments}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    rounds = max(1, parser.parse_args().calls // CALLS_A_ROUND)
    x, y = torch.randn(4, 32, device="cuda"), torch.empty(4, 32, device="cuda")
    usable = [name for name, (found, _) in registry.launchers().items() if found]
    paths = [("driver", "native"), *((name, "python") for name in usable)]
    by_path, split = {}, {}
    with torch.no_grad():
        for launcher, path in paths:
            calls = Calls(launcher, path)
            by_path[f"{launcher}, {path}"] = calls.measure(rounds)
            if launcher == "driver":
                split[path] = calls.split(rounds)
        add = microseconds(lambda i: torch.add(x, x, out=y), rounds)
    best = min(by_path, key=lambda name: by_path[name]["us"])
    result = {
        "benchmark": "kernel_call",
        "us": round(by_path[best]["us"], 2),
        "path": best,
        "by_path": {n: {k: round(v, 2) for k, v in f.items()} for n, f in by_path.items()},
        "split_us": {n: {k: round(v, 2) for k, v in f.items()} for n, f in split.items()},
        "add_us": round(add, 2),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
