"""How a wrong answer is named: by accident wrong or a cached result, at which thread order, at which alignment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kforge.environment.report import Report, Status
from kforge.kernel.candidate import Candidate
from tests.patience import PATIENCE_S

Judge = Callable[..., Report]

PEAK_CU = """
__device__ float larger(float a, float b) { return a > b || a != a ? a : b; }
extern "C" __global__ void peak(const float* x, float* y, int rows, int cols, int s0, int s1) {
    int r = blockIdx.x * 32 + threadIdx.x;
    if (r >= rows) return;
    const float* in = x + (long long)r * s0;
    float m = -INFINITY;
    if (s1 == 1 && s0 % 4 == 0 && cols % 4 == 0 && (size_t)x % 16 == 0) {
        for (int c = 0; c < cols; c += 4) {
            float4 q = *reinterpret_cast<const float4*>(in + c);
            m = larger(larger(larger(q.x, q.y), larger(q.z, q.w)), m);
        }
    } else {
        for (int c = 0; c < cols; c++) m = larger(in[(long long)c * s1], m);
    }
    y[r] = m;
}
"""

PEAK_PY = """
import torch
from torch import nn
from kforge.kernel import Kernel

peak = Kernel("peak", source="peak_kforge.cu", grid="(ceil_div(rows, 32), 1, 1)", block="(32, 1, 1)", strided=("x",))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.size(0), device=x.device)
        peak(x, y, x.size(0), x.size(1), x.stride(0), x.stride(1))
        return y
"""

CACHED = (
    ("class ModelNew", "CACHE = {}\n\n\nclass ModelNew"),
    (
        "        y = torch.empty(",
        "        if x.shape in CACHE:\n            return CACHE[x.shape].clone()\n        y = torch.empty(",
    ),
    ("        return y", "        CACHE[x.shape] = y\n        return y"),
)

PAIRS = """
    if (t % 2) {
        y[r - 1] = part[t - 1];
        y[r] = m;
    } else if (r == rows - 1) {
        y[r] = m;
    }
"""


def peak(*changes: tuple[str, str]) -> Candidate:
    """The right candidate with these replacements."""
    python, cuda = PEAK_PY, PEAK_CU
    for old, new in changes:
        assert (old in python) != (old in cuda), old
        python, cuda = python.replace(old, new), cuda.replace(old, new)
    return Candidate("peak_kforge.py", {"peak_kforge.py": python, "peak_kforge.cu": cuda})


def fired(report: Report) -> set[str]:
    """Names of the detectors that fired."""
    return {d.name for d in report.detectors if d.fired}


def test_a_right_maximum_is_verified(judge: Judge) -> None:
    """NaN kept, vectors only where the address and the stride allow them."""
    report = judge("peak", peak(), "standard")
    assert report.status is Status.VERIFIED, report.failure


def test_a_dropped_nan_is_no_cached_result(judge: Judge) -> None:
    """fmaxf gives the answer of the same inputs without the NaN, bit by bit: a mistake, and no cheat."""
    report = judge("peak", peak(("return a > b || a != a ? a : b;", "return fmaxf(a, b);")), "standard")
    assert report.status is Status.WRONG and "NaN" in report.failure
    assert "cached_result" not in fired(report)


def test_a_cached_small_result_is_one_whatever_call_shows_it(judge: Judge) -> None:
    """An answer of a dozen numbers, given again for other values: asked once more, it comes a third time."""
    for plan in ("quick", "standard"):
        report = judge("peak", peak(*CACHED), plan)
        assert report.status is Status.HACKED and fired(report) == {"cached_result"}, report.failure


@pytest.mark.parametrize("gone", ["s0 % 4 == 0 && ", " && (size_t)x % 16 == 0"])
def test_vectors_at_addresses_that_are_none_are_wrong(judge: Judge, gone: str) -> None:
    """A stride or an address that is no multiple of a vector: a GPU faults there, so the emulator stops the launch."""
    report = judge("peak", peak((gone, "")), "standard")
    assert report.status is Status.WRONG and "out_of_bounds" in fired(report)
    assert "peak_kforge.cu:10: misaligned read: the address is no multiple of 16 bytes, thread (" in report.failure


def test_repro_takes_the_thread_order_of_the_failure(judge: Judge) -> None:
    """A thread stores what its neighbour has kept, without a barrier: wrong in some orders, and repro.py shows it."""
    early = peak(
        ("    y[r] = m;", "    __shared__ float part[32];\n    int t = threadIdx.x;\n    part[t] = m;\n" + PAIRS),
    )
    assert judge("peak", early).status is Status.VERIFIED
    report = judge("peak", early, "standard")
    assert report.status is Status.WRONG and ", thread order " in report.failure.split(":")[0]
    assert report.repro is not None and 'os.environ["KFORGE_EMULATOR"] = "order:' in Path(report.repro).read_text()
    environ = {k: v for k, v in os.environ.items() if k != "KFORGE_EMULATOR"}
    out = subprocess.run(
        [sys.executable, report.repro], capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environ
    )
    assert out.returncode == 0, out.stderr
    assert "elements differ from the reference; worst at" in out.stdout
