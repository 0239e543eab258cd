"""Mode `checked` finds accesses out of bounds, misaligned ones and missing barriers, and nothing in correct kernels."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from kforge.errors import EmulatorError
from kforge.kernel.emulator import load
from kforge.kernel.emulator.checked import Buffer, Launch, Pointer, Scalar, run_checked
from kforge.kernel.emulator.findings import environment

SOURCE = r"""#include <cuda_runtime.h>
extern "C" __global__ void good(const float* x, float* y, int n) {
  __shared__ float s[64];
  extern __shared__ float d[];
  int t = threadIdx.x;
  s[t] = x[t]; d[t] = x[n - 1 - t];
  __syncthreads();
  y[t] = s[63 - t] + d[t];
}
extern "C" __global__ void reads_past(const float* x, float* y, int n) {
  int t = threadIdx.x;
  y[t] = x[t + 1];                       // line 12
}
extern "C" __global__ void writes_before(const float* x, float* y, int n) {
  y[(int)threadIdx.x - 2] = x[threadIdx.x];   // line 15
}
extern "C" __global__ void static_past(const float* x, float* y, int n) {
  __shared__ float before[8], s[60], after[8];
  s[threadIdx.x] = x[threadIdx.x];       // line 19
  before[threadIdx.x & 7] = after[threadIdx.x & 7] = 0;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x & 31];
}
template <int N> __global__ void template_past(const float* x, float* y, int n) {
  __shared__ float s[N];
  s[threadIdx.x] = x[threadIdx.x];       // line 26
  y[threadIdx.x] = 0;
}
extern "C" __global__ void dynamic_past(const float* x, float* y, int n) {
  extern __shared__ float d[];
  d[threadIdx.x + 4] = x[threadIdx.x];   // line 31
  y[threadIdx.x] = 0;
}
extern "C" __global__ void misaligned(const float* x, float* y, int n) {
  if (threadIdx.x == 0) y[0] = reinterpret_cast<const float2*>(x + 1)->y;   // line 35
}
extern "C" __global__ void no_barrier(const float* x, float* y, int n) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void no_second_barrier(const float* x, float* y, int n) {
  __shared__ float s[64];
  float sum = 0;
  for (int i = 0; i < 3; i++) {
    s[threadIdx.x] = x[threadIdx.x] * i;
    __syncthreads();
    sum += s[63 - threadIdx.x];
  }
  y[threadIdx.x] = sum;
}
extern "C" __global__ void null_pointer(const float* x, float* y, int n) {
  if (threadIdx.x == 5) *(volatile float*)nullptr = x[0];   // line 53
  y[threadIdx.x] = 0;
}
extern "C" __global__ void stops(const float* x, float* y, int n) {
  if (threadIdx.x < 32) __syncthreads();   // line 57
  else __syncthreads();                    // line 58
}
"""
X = np.arange(1, 65, dtype=np.float32)


def check(*kernels: str, orders=(0, 1, 2, 3)):
    """The report of the kernels, one launch each, on x and y of 256 bytes and 256 bytes of dynamic shared memory."""
    args = (Pointer("x"), Pointer("y"), Scalar(struct.pack("i", 64)))
    launches = [Launch(SOURCE, "c.cu", k, (1, 1, 1), (64, 1, 1), args, shared=256) for k in kernels]
    return run_checked(launches, [Buffer("x", X.nbytes, X.tobytes()), Buffer("y", 256)], orders)


def test_a_correct_kernel_is_clean():
    """No finding, and every launch ran in every order."""
    report = check("good")
    assert report.clean and report.launches == 4


@pytest.mark.parametrize(("kernel", "line", "access", "buffer", "offset", "size"), [
    ("reads_past", 12, "read", "x", 256, 256),
    ("writes_before", 15, "write", "y", -8, 256),
    ("static_past", 19, "write", "s", 240, 240),
    ("template_past<48>", 26, "write", "s", 192, 192),
    ("dynamic_past", 31, "write", "dynamic shared memory", 256, 256),
])  # fmt: skip
def test_out_of_bounds(kernel, line, access, buffer, offset, size):
    """Global, static and dynamic shared memory: the line, the buffer and the byte are named."""
    findings = [f for f in check(kernel, orders=(0,)).findings if f.kind == "out_of_bounds"]
    assert [(f.kernel, f.file, f.line, f.access, f.size, f.buffer, f.offset, f.nbytes) for f in findings] == [
        (kernel, "c.cu", line, access, 4, buffer, offset, size)
    ]
    assert f"c.cu:{line}: {kernel}: {access} of 4 bytes out of bounds at byte {offset} of {buffer}" in str(findings[0])


def test_misaligned_access():
    """A vector load from an address that is not a multiple of its size."""
    (finding,) = check("misaligned", orders=(0,)).findings
    assert (finding.kind, finding.file, finding.line, finding.buffer, finding.offset) == (
        "misaligned",
        "c.cu",
        35,
        "x",
        4,
    )


@pytest.mark.parametrize("kernel", ["no_barrier", "no_second_barrier"])
def test_missing_barrier_is_found_by_an_order(kernel):
    """Outputs are compared bitwise between thread orders; a missing barrier shows as a difference."""
    findings = check(kernel).findings
    assert {(f.kind, f.kernel, f.buffer) for f in findings} == {("order", kernel, "y")}


def test_crash_and_failure_are_findings():
    """A null pointer and a divergent barrier end their launch and are reported with their lines."""
    failed = check("stops", orders=(0,)).findings
    assert failed[0].kind == "failed" and "c.cu:57 " in failed[0].message and "c.cu:58 " in failed[0].message
    (crash,) = check("good", "null_pointer", orders=(0,)).findings
    assert (crash.kind, crash.kernel, crash.file, crash.line, crash.access) == (
        "crashed",
        "null_pointer",
        "c.cu",
        53,
        "write",
    )


def test_checked_mode_in_a_process_of_its_own():
    """With the variables of environment() a plain launch raises on the first access out of bounds."""
    code = f"""
import ctypes, numpy as np
from kforge.errors import EmulatorError
from kforge.kernel.emulator import load
program = load({SOURCE!r}, "c.cu", ["reads_past"])
load({SOURCE!r}, "c.cu", ["good"])
libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p
x, y = libc.malloc(256), libc.malloc(256)
try:
    program.launch("reads_past", (1, 1, 1), (64, 1, 1), 0, [ctypes.c_void_p(x), ctypes.c_void_p(y), ctypes.c_int(64)])
except EmulatorError as error:
    print(error.message)
"""
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment()}, capture_output=True, text=True
    )
    expected = "c.cu:12: reads_past: read of 4 bytes out of bounds at byte 256 of parameter 0 (256 bytes)"
    assert out.stdout.startswith(expected), out.stdout + out.stderr


def test_checked_mode_needs_the_sanitizer():
    """Without libasan in the process, loading says what to do."""
    with pytest.raises(EmulatorError) as error:
        load(SOURCE, "c.cu", ["good"], mode="checked")
    assert "environment()" in error.value.hint
