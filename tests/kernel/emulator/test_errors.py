"""What goes wrong inside a kernel is an error that names the user's lines; what a GPU would refuse is one before."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from kforge.errors import BuildError, EmulatorError, LaunchError, MisalignedError
from kforge.kernel.emulator import load

SOURCE = "errors"


@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize(("kernel", "pattern"), [
    ("divergent", r"divergent barrier.*errors\.cu:(8|10) .*errors\.cu:(8|10) "),
    ("deadlock", r"deadlock: 16 threads .* errors\.cu:14 \(__syncthreads\).*16 threads .* errors\.cu:15 \(__shfl_sync"),
    ("not_in_mask", r"errors\.cu:18 \(__shfl_sync\): lane \d+ is not in its own mask 0x0000ffff"),
    ("different_masks", r"different warp operations: lane \d+ with mask 0xfffffff[0f] at errors\.cu:20 "),
    ("asserts", r"errors\.cu:32 .*p\[0\] == 1 && \"must be one\", thread \(\d+,0,0\) of block \(0,0,0\)"),
    ("traps", r"errors\.cu:33 \(__trap\): the kernel stopped itself"),
    ("grid_wide", r"errors\.cu:34 .*needs a cooperative launch"),
    ("wrong_wmma_rank", r"errors\.cu:42 .*rank 3 of a cluster of 1"),
])  # fmt: skip
def test_kernel_errors(launch, kernel, pattern, order):
    """Each failure is an EmulatorError with the place, in every thread order."""
    with pytest.raises(EmulatorError) as error:
        launch(kernel, 1, 32, np.zeros(64, np.float32), order=order)
    assert error.value.message.startswith(f"{kernel}: ")
    assert re.search(pattern, error.value.message), error.value.message


@pytest.mark.parametrize(("kernel", "words"), [
    ("vector_read", "errors.cu:45: misaligned read: the address is no multiple of 16 bytes, thread (1,0,0) of block"),
    ("vector_write", "errors.cu:48: misaligned write: the address is no multiple of 8 bytes, thread (0,0,0) of block"),
])  # fmt: skip
def test_a_vector_off_its_alignment_stops_the_launch(launch, kernel, words):
    """In mode fast too, though this processor reads it: a GPU faults there."""
    with pytest.raises(MisalignedError) as error:
        launch(kernel, 1, 2, np.zeros(64, np.float32))
    assert words in error.value.message and error.value.kind == "misaligned"
    launch("fine", 1, 64, np.zeros(64, np.float32))


@pytest.mark.parametrize(
    ("kernel", "place"), [("endless", "errors.cu:27 (__syncthreads)"), ("spins", "errors.cu:30 (atomicAdd)")]
)
def test_time_limit(launch, kernel, place, monkeypatch):
    """A loop of barriers and a wait for another block's flag end at KFORGE_EMULATOR_SECONDS."""
    monkeypatch.setenv("KFORGE_EMULATOR_SECONDS", "0.2")
    with pytest.raises(EmulatorError, match=r"no end after 0\.2 s") as error:
        launch(kernel, 1, 64, np.zeros(64, np.int32))
    assert place in error.value.message
    assert "KFORGE_EMULATOR_SECONDS" in error.value.hint


def test_a_failed_launch_leaves_nothing_behind(launch):
    """After an error the next launch works and is right."""
    for kernel in ("deadlock", "traps", "divergent"):
        with pytest.raises(EmulatorError):
            launch(kernel, 3, 64, np.zeros(64, np.float32))
        y = np.zeros(64, np.float32)
        launch("fine", 1, 64, y)
        assert (y == 2).all()


def test_exited_threads(launch, monkeypatch):
    """A barrier that some threads never reach because they left is accepted, and an error in strict mode."""
    launch("exits_early", 1, 64, np.zeros(64, np.float32))
    monkeypatch.setenv("KFORGE_EMULATOR_STRICT", "1")
    with pytest.raises(
        EmulatorError, match=r"errors\.cu:23 \(__syncthreads\): barrier reached by 16 threads, \d+ exited"
    ):
        launch("exits_early", 1, 64, np.zeros(64, np.float32))


def test_gpu_only_instruction(launch):
    """Inline PTX outside the whitelist is an error when it is reached, and names the instruction."""
    with pytest.raises(EmulatorError, match=r"errors\.cu:36") as error:
        launch("tensor_core", 1, 32, np.zeros(64, np.float32))
    assert error.value.gpu_only == "tcgen05.wait::ld.sync.aligned"


@pytest.mark.parametrize("header", ["cuda/barrier", "cute/tensor.hpp", "cub/cub.cuh"])
def test_gpu_only_header(header):
    """A header with no host side makes the whole source GPU-only."""
    source = f'#include <{header}>\nextern "C" __global__ void k(float* p) {{ no_such_thing(p); }}\n'
    with pytest.raises(EmulatorError) as error:
        load(source, "k.cu", ["k"])
    assert error.value.gpu_only == header


@pytest.mark.parametrize(("options", "pattern"), [
    ({"block": (1025, 1, 1)}, "1025 threads"),
    ({"block": (1, 1, 128)}, "64 along z"),
    ({"grid": (1, 70000, 1)}, "outside"),
    ({"shared": 300000}, "at most 232448"),
    ({"cluster": (2, 1, 1)}, "must divide"),
    ({"grid": (34, 1, 1), "cluster": (17, 1, 1)}, "at most 16"),
    ({"grid": (100, 1, 1), "block": (1024, 1, 1), "cooperative": True}, "65536"),
    ({"args": []}, "takes 1 arguments, 0 were given"),
    ({"args": [ctypes.c_int(1)]}, "parameter 0 has 8 bytes, the argument has 4"),
    ({"kernel": "none"}, "no kernel 'none'"),
])  # fmt: skip
def test_refused_launches(options, pattern):
    """What a GPU refuses to launch, and arguments that do not fit, are LaunchErrors before anything runs."""
    from tests.kernel.emulator.conftest import _program

    call = {
        "kernel": "fine",
        "grid": (1, 1, 1),
        "block": (1, 1, 1),
        "shared": 0,
        "args": [ctypes.c_void_p(0)],
        **options,
    }
    with pytest.raises(LaunchError, match=pattern):
        _program("errors").launch(**call)


def test_compile_errors_point_at_the_users_lines(tmp_path):
    """g++'s first error becomes the message, with file and line of the source or of the header it includes."""
    with pytest.raises(BuildError, match=r"^k\.cu:3:\d+: .*oops") as error:
        load('extern "C" __global__ void k(float* p) {\n  __shared__ float s[\n32]; p[0] = oops; }', "k.cu", ["k"])
    assert "oops" in error.value.log
    (tmp_path / "mine.cuh").write_text("__device__ float f() {\n  return undefined_name;\n}\n")
    source = '#include "mine.cuh"\nextern "C" __global__ void k(float* p) { p[0] = f(); }'
    with pytest.raises(BuildError, match=rf"^{tmp_path}/mine\.cuh:2:\d+: .*undefined_name"):
        load(source, "k.cu", ["k"], includes=[tmp_path])
    with pytest.raises(BuildError, match=r"^k\.cu:12:\d+: .*oops"):  # constants in front shift nothing
        load('#define N 4\n#line 10 "k.cu"\n\nextern "C" __global__ void k(float* p) {\np[0] = oops; }', "k.cu", ["k"])
