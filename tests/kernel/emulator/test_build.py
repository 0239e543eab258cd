"""Builds are cached by content, safe for several processes, and never made in a read-only cache."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from kforge.errors import BuildError, MissingError, UsageError
from kforge.kernel.build.cache import read_only_cache
from kforge.kernel.emulator import Mode, build, load
from kforge.kernel.emulator.mode import Kind, current_mode

SOURCE = 'extern "C" __global__ void k(T* p) { p[threadIdx.x] = T(N); }\n'


def entries(folder):
    """Finished entries of a cache folder."""
    return sorted(p.name for p in (folder / "emulator").iterdir() if p.is_dir() and not p.name.startswith("."))


def test_a_second_load_compiles_nothing(tmp_path, monkeypatch):
    """The library, the prelude and the runtime are made once; another constant makes another library."""
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path))
    program = load(SOURCE, "k.cu", ["k"], defines={"N": 3}, types={"T": "double"})
    first = entries(tmp_path)
    assert len(first) == 3
    y = np.zeros(4)
    program.launch("k", (1, 1, 1), (4, 1, 1), 0, [ctypes.c_void_p(y.ctypes.data)])
    assert (y == 3).all()
    monkeypatch.setattr(build, "_compile", lambda *a: pytest.fail("compiled again"))
    load(SOURCE, "k.cu", ["k"], defines={"N": 3}, types={"T": "double"})
    assert entries(tmp_path) == first
    with read_only_cache(), pytest.raises(BuildError, match=r"read-only cache: k of k\.cu for the emulator"):
        load(SOURCE, "k.cu", ["k"], defines={"N": 4}, types={"T": "double"})


def test_a_changed_header_is_another_build(tmp_path):
    """Headers that the source includes are part of the key."""
    source = '#include "n.h"\nextern "C" __global__ void k(int* p) { *p = VALUE; }'
    for value in (1, 2):
        (tmp_path / "n.h").write_text(f"#define VALUE {value}\n")
        y = np.zeros(1, np.int32)
        load(source, "k.cu", ["k"], includes=[tmp_path]).launch(
            "k", (1, 1, 1), (1, 1, 1), 0, [ctypes.c_void_p(y.ctypes.data)]
        )
        assert y[0] == value


def test_several_processes_build_at_once(tmp_path):
    """Four processes that start on an empty cache all get a working library and leave one of each part."""
    code = (
        "import ctypes; from kforge.kernel.emulator import load; y = ctypes.c_int();"
        "load('extern \"C\" __global__ void k(int* p) { *p = 5; }', 'k.cu', ['k'])"
        ".launch('k', (1,1,1), (1,1,1), 0, [ctypes.c_void_p(ctypes.addressof(y))]); print(y.value)"
    )
    env = {**os.environ, "KFORGE_CACHE": str(tmp_path)}
    children = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [c.communicate()[0].strip() for c in children] == ["5"] * 4
    assert len(entries(tmp_path)) == 3


def test_missing_parts_are_named(monkeypatch):
    """Without g++ or without NVIDIA's headers the error says what to install."""
    monkeypatch.setenv("KFORGE_CXX", "no-such-compiler")
    build.toolchain.cache_clear()
    with pytest.raises(MissingError, match="no-such-compiler is not here"):
        load(SOURCE, "k.cu", ["k"])
    monkeypatch.delenv("KFORGE_CXX")
    monkeypatch.setattr(build, "cuda_includes", lambda: ())
    build.toolchain.cache_clear()
    with pytest.raises(MissingError) as error:
        load(SOURCE, "k.cu", ["k"])
    assert "kforge-cuda[cu13]" in error.value.hint
    build.toolchain.cache_clear()


def test_mode_from_the_environment(monkeypatch):
    """KFORGE_EMULATOR is read in one place; anything unknown is a usage error."""
    for text, mode in (("fast", Mode()), ("order:7", Mode(Kind.FAST, 7)), ("checked", Mode(Kind.CHECKED))):
        monkeypatch.setenv("KFORGE_EMULATOR", text)
        assert current_mode() == mode
    for text in ("slow", "order", "order:x"):
        with pytest.raises(UsageError, match="unknown emulator mode"):
            Mode.parse(text)


def test_blocks_on_several_threads_give_the_same_bits(monkeypatch):
    """Spreading blocks over OS threads changes nothing: static shared memory is per block."""
    source = """extern "C" __global__ void k(const float* x, float* y) {
      __shared__ float s[256];
      int i = blockIdx.x * 256 + threadIdx.x;
      s[threadIdx.x] = x[i];
      __syncthreads();
      y[i] = s[255 - threadIdx.x] * 3.0f;
    }"""
    x = np.random.default_rng(0).standard_normal((500, 256), dtype=np.float32)
    program = load(source, "k.cu", ["k"])
    assert not program.library.translation.sequential
    for threads in ("1", "4"):
        monkeypatch.setenv("KFORGE_EMULATOR_THREADS", threads)
        y = np.zeros_like(x)
        program.launch("k", (500, 1, 1), (256, 1, 1), 0, [ctypes.c_void_p(a.ctypes.data) for a in (x, y)])
        assert np.array_equal(y, x[:, ::-1] * np.float32(3))
