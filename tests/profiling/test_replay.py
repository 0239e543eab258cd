"""The replay program against a stand-in for the driver's library that writes down what it is asked to do."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.kernel import Kernel, hooks
from kforge.worker.profiled import _Book
from tests.patience import PATIENCE_S

STUB = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long ptr;
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)1; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuModuleLoadData(void **m, const char *image) {
  printf("load %d\n", memcmp(image, "\177ELF", 4)); *m = (void *)2;
  return 0;
}
int cuModuleGetFunction(void **f, void *m, const char *name) {
  printf("function %s\n", name);
  *f = (void *)3;
  return 0;
}
int cuFuncSetAttribute(void *f, int a, int v) { return 0; }
int cuKernelSetAttribute(int a, int v, void *k, int d) { return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = 232448; return 0; }
int cuGetErrorName(int s, const char **t) { *t = "E"; return 0; }
int cuGetErrorString(int s, const char **t) { *t = "error"; return 0; }
int cuMemAlloc_v2(ptr *p, size_t n) {
  *p = (ptr)aligned_alloc(512, (n + 511) / 512 * 512);
  return 0;
}
int cuMemFree_v2(ptr p) { printf("free %d\n", p != 0); free((void *)p); return 0; }
int cuMemcpyHtoD_v2(ptr d, const void *s, size_t n) { memcpy((void *)d, s, n); return 0; }
int cuMemsetD8_v2(ptr d, unsigned char c, size_t n) { memset((void *)d, c, n); return 0; }
struct config { unsigned grid[3], block[3], shared; void *stream; void *attributes; unsigned n; };
int cuLaunchKernelEx(const struct config *c, void *f, void **args, void **extra) {
  float *x = (float *)*(ptr *)args[0];
  printf("launch %u %u shared %u x0 %g x255 %g n %lld factor %g on %d aligned %d\n", c->grid[0], c->block[0], c->shared,
         x[0], x[255], *(long long *)args[2], *(float *)args[3], *(char *)args[4], (int)((uintptr_t)x % 512));
  fflush(stdout);
  return 0;
}
"""
SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, long long n, float factor, bool on) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n && on) y[i] = x[i] * factor;
}
"""


@pytest.mark.parametrize("walls", ["full", "files"])
def test_launches_are_made_again_with_their_memory(tmp_path: Path, walls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind either wall: the cubin, geometry, scalars, memory with its alignment; what was cut is repeated."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    candidate = tmp_path / "candidate"
    folder = candidate / "tmp" / "launches"
    folder.mkdir(parents=True)
    (tmp_path / "stub.c").write_text(STUB)
    library = candidate / "libcuda.so.1"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "stub.c")], check=True)

    monkeypatch.setattr("kforge.worker.profiled.KEPT_BYTES", {"float": 0, "other": 0})
    monkeypatch.setattr("kforge.worker.profiled.PIECE", 512)
    book = _Book(folder)
    whole = torch.arange(300, dtype=torch.float32)
    x = torch.frombuffer(bytearray(struct.pack("256f", *whole[:256].tolist())), dtype=torch.float32)
    kernel = Kernel("scale", SOURCE, grid="(ceil_div(n, 128), 1, 1)", block=128)

    def add(k: Any, plan: Any, args: tuple[Any, ...], values: list[Any]) -> None:
        book.add(k, replace(plan, device=0), args, values)

    with hooks.recording(add):
        kernel(x, torch.zeros(256), 256, 2.5, True)
    cubin = candidate / "k.cubin"
    shutil.copyfile(book.launches[0]["cubin"], cubin)
    book.launches[0]["cubin"] = str(cubin)
    offset = book.buffers[0]["offset"]
    book.save()

    root = Path(__file__).parents[2]
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(candidate), "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "kforge.worker.replay", str(folder), walls, "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    launch = f"launch 2 128 shared 0 x0 0 x255 127 n 256 factor 2.5 on 1 aligned {offset % 512}"
    assert lines.count(launch) == 2  # 512 of 1,024 bytes were kept: element 255 is element 127 again
    assert lines.count("load 0") == 1 and "function scale" in lines and lines.count("free 1") == 2
    assert "replayed 1" in lines
