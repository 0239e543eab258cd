"""Mode `traced` finds every planted race, names both lines, reports nothing in correct kernels, and profiles lines."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from kforge.errors import EmulatorError
from kforge.kernel.emulator import Mode, load
from kforge.kernel.emulator.mode import Kind
from kforge.kernel.emulator.traced import Buffer, Launch, Pointer, Scalar, run_traced
from tests.kernel.emulator.races.cases import Case, cases, findings, found

ORDERS = (0, 1, 2, 3)


@pytest.mark.parametrize("case", cases("planted.cu"), ids=lambda c: c.kernel)
def test_planted_race_is_found(case: Case):
    """The marked pair of lines is among the races; each names its memory and two threads (a copy in flight: one)."""
    reported = findings(case)
    assert found(case, reported), [str(f) for f in reported]
    for f in reported:
        assert f.file == f.other_file == "planted.cu" and f.buffer
        assert 0 <= f.offset < f.nbytes
        assert (f.thread, f.block) != (f.other_thread, f.other_block) or case.kernel == "copy_not_waited"


@pytest.mark.parametrize("case", cases("clean.cu"), ids=lambda c: c.kernel)
def test_correct_kernel_is_clean(case: Case):
    """No finding and no warning, in four thread orders."""
    assert [str(f) for f in findings(case, ORDERS)] == []


@pytest.mark.parametrize("order", ORDERS)
def test_missing_barriers_are_found_in_every_order(order):
    """What no flag orders is a race whichever thread runs first: one order is enough."""
    unordered = [c for c in cases("planted.cu") if "block" not in c.kernel and "flag" not in c.kernel]
    missed = [c.kernel for c in unordered if c.grid == (1, 1, 1) and not found(c, findings(c, [order]))]
    assert missed == []


def test_the_suite_is_large_enough():
    """At least 25 planted and 25 clean kernels."""
    assert len(cases("planted.cu")) >= 25 and len(cases("clean.cu")) >= 25


SOURCE = r"""#include <cuda_runtime.h>
extern "C" __global__ void coalesced(const float* x, float* y, int n) {
  __shared__ float s[32][32];
  int t = threadIdx.x, i = blockIdx.x * 32 + t;
  y[i] = x[i];                      // line 5
  y[i] += x[(i * 8) % n];           // line 6
  s[t][0] = 1.f;                    // line 7
  s[0][t] = 2.f;                    // line 8
  atomicAdd(&s[t][t], 1.f);         // line 9
  float4 v = reinterpret_cast<const float4*>(x)[t];  // line 10
  y[i] += v.x + x[0];               // line 11
}
extern "C" __global__ void same_value(const float* x, float* y, int n) {
  __shared__ bool any;
  any = false;
  __syncthreads();
  if (x[threadIdx.x] > 0.f) any = true;   // line 17
  __syncthreads();
  y[threadIdx.x] = any;
}
extern "C" __global__ void outside(const float* x, float* y, int n) {
  y[threadIdx.x] = x[n + 2 * (threadIdx.x == 1)];  // line 22
}
extern "C" __global__ void wild(const float* x, float* y, int n) {
  y[threadIdx.x] = *(const float*)16;  // line 25
}
extern "C" __global__ void never(const float* x, float* y, int n) {
  while (*(volatile float*)x == 0.f) __nanosleep(20);  // line 28
}
"""
X = np.arange(1, 1025, dtype=np.float32)


def traced(*kernels: str, grid: int = 4, n: int = 1024, orders=(0, 2)):
    """The report of one launch each, 32 threads a block, on x and y of 4 KiB."""
    args = (Pointer("x"), Pointer("y"), Scalar(struct.pack("i", n)))
    launches = [Launch(SOURCE, "t.cu", k, (grid, 1, 1), (32, 1, 1), args) for k in kernels]
    return run_traced(launches, [Buffer("x", X.nbytes, X.tobytes()), Buffer("y", X.nbytes)], orders)


def test_profile():
    """Per line: executions, bytes, sectors of a warp's request against the least, wavefronts of shared memory."""
    report = traced("coalesced", orders=(0,))
    rows = {(p.line, p.access): p for p in report.profile[0] if p.file == "t.cu"}
    read, strided, vector = rows[5, "read"], rows[6, "read"], rows[10, "read"]
    assert (read.executions, read.nbytes, read.requests, read.units, read.ideal) == (128, 512, 4, 16, 16)
    assert read.excess == 1.0 and rows[5, "write"].excess == 1.0
    assert (strided.requests, strided.units_per_request, strided.excess) == (4, 32.0, 8.0)  # a stride of 32 bytes
    assert (vector.size, vector.nbytes, vector.units_per_request) == (16, 2048, 16.0)
    assert (rows[7, "write"].space, rows[7, "write"].units_per_request, rows[7, "write"].excess) == ("shared", 32, 32)
    assert rows[8, "write"].units_per_request == 1.0
    assert rows[9, "read+write"].executions == 128
    total = report.totals[0]
    per_thread = 4 * 4 + 16  # x in lines 5, 6, 11, y in 11 (after the atomic), a float4 in 10
    assert (total.read_bytes, total.written_bytes) == (128 * per_thread, 128 * 12)


def test_writes_of_the_same_value_are_warnings():
    """Several threads store the same flag: no race, a warning with the line."""
    report = traced("same_value", grid=1)
    assert report.clean and {(w.line, w.other_line) for w in report.warnings} == {(15, 15), (17, 17)}
    assert "write of the same value races with the write at t.cu:17 on byte 0 of any" in str(report.warnings[-1])


def test_accesses_outside_every_buffer():
    """A read past a buffer is a finding with buffer and offset; one of memory that is not there ends its launch."""
    (finding,) = traced("outside", grid=1).findings
    assert (finding.kind, finding.line, finding.access, finding.buffer, finding.offset) == (
        "out_of_bounds", 22, "read", "x", 4096,
    )  # fmt: skip
    report = traced("wild", "same_value", grid=1, orders=(0,))
    place, end = sorted(report.findings, key=lambda f: f.kind != "out_of_bounds")
    assert (place.kind, place.line, place.offset) == ("out_of_bounds", 25, 16)
    assert end.kind == "failed" and "read of memory that is not there, thread (0,0,0) of block (0,0,0)" in end.message
    assert report.launches == 1  # the process survives


def test_failure_is_a_finding():
    """A deadlock ends its launch, the next one still runs."""
    source = SOURCE.replace("*(volatile float*)x == 0.f", "*(volatile float*)x == 1.f")
    args = (Pointer("x"), Pointer("y"), Scalar(struct.pack("i", 1024)))
    launches = [Launch(source, "t.cu", k, (1, 1, 1), (1, 1, 1), args) for k in ("never", "same_value")]
    report = run_traced(launches, [Buffer("x", X.nbytes, X.tobytes()), Buffer("y", X.nbytes)], orders=(0,))
    assert report.launches == 1
    assert [f.kind for f in report.findings] == ["failed"] and "deadlock" in report.findings[0].message


def test_traced_mode_in_process():
    """A plain launch in mode traced raises on a race and names parameters by position where no buffers are given."""
    assert Mode.parse("traced:2") == Mode(Kind.TRACED, 2)
    program = load(SOURCE, "t.cu", ["coalesced", "same_value"], mode="traced")
    x, y = X.copy(), np.zeros_like(X)
    args = [ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int(1024)]
    program.launch("same_value", (1, 1, 1), (32, 1, 1), 0, args)
    assert [f.kind for f in program.findings] == ["same_value", "same_value"] and (y[:32] == 1).all()
    race = r"t\.cu:(5|6|11): coalesced: write races with the write at t\.cu:(5|6|11) on byte 0 of parameter 1: "
    with pytest.raises(EmulatorError, match=race):
        racy = load(SOURCE.replace("blockIdx.x * 32 + t", "t"), "t.cu", ["coalesced"], mode="traced")
        racy.launch("coalesced", (2, 1, 1), (32, 1, 1), 0, [args[0], args[1], args[2]])


def test_several_sources_report_for_themselves():
    """A race of one library is told once, for its own kernel, though another library records in the same file."""
    racy = 'extern "C" __global__ void racy(float* y) { y[0] = threadIdx.x; }'
    clean = 'extern "C" __global__ void clean(float* y) { y[threadIdx.x] = 1.f; }'
    launches = [
        Launch(text, f"{name}.cu", name, (1, 1, 1), (32, 1, 1), (Pointer("y"),))
        for name, text in (("racy", racy), ("clean", clean))
    ]
    report = run_traced(launches, [Buffer("y", 128)], orders=(0,))
    assert [(f.kernel, f.launch) for f in report.findings] == [("racy", 0)]
    assert [len(lines) for lines in report.profile] == [1, 1]
