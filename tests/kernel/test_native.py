"""The native call: the same results, refusals and counts as the Python call, and only for calls that are its own."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from kforge.errors import KforgeError, LaunchError
from kforge.kernel import Kernel, build_only, launches, native, overrides

from .conftest import NativeCalls

MIX = """\
extern "C" __global__ void mix(const float* x, float* y, int rows, long long cols, unsigned char shift, float factor,
                               double offset, bool negate, const float* bias) {
    for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
        const long long i = blockIdx.x * cols + c;
        y[i] = x[i] * (negate ? -factor : factor) + (float)offset + shift + (bias ? bias[c] : 0.0f) + SCALE;
    }
}
"""


def _aligned(values: torch.Tensor) -> torch.Tensor:
    """The same at a multiple of 1024: the alignment class that address 0 is in too."""
    storage = torch.empty(values.numel() + 256)
    start = -storage.data_ptr() % 1024 // 4
    return storage[start : start + values.numel()].view(values.shape).copy_(values)


X, BIAS = _aligned(torch.arange(32.0).reshape(4, 8)), torch.arange(8.0)
FREED = torch.ones(4, 8)
FREED.untyped_storage().resize_(0)
LEAF = torch.ones(4, 8, requires_grad=True)
SPARE = torch.zeros(80)
OUT = torch.empty(4, 8)  # one for all calls: the alignment of fresh memory differs, and with it the plan
GOOD = (X, None, 4, 8, 3, 2.0, 0.5, False, BIAS)


def _kernel() -> Kernel:
    return Kernel("mix", MIX, grid="(rows, 1, 1)", block=32, constants={"SCALE": 0})


def _expected(x: torch.Tensor, factor: float, offset: float, shift: int, bias: torch.Tensor | None) -> torch.Tensor:
    return x * factor + offset + shift + (0 if bias is None else bias)


def _replaced(**changes: Any) -> tuple:
    names = ("x", "y", "rows", "cols", "shift", "factor", "offset", "negate", "bias")
    return tuple(changes.get(name, value) for name, value in zip(names, GOOD, strict=True))


# What follows a good call. y None: OUT.
CALLS: dict[str, tuple] = {
    "the same again": GOOD,
    "other values": _replaced(shift=255, factor=-1.5, offset=1e300, negate=True),
    "ints for floats": _replaced(factor=3, offset=2),
    "infinity": _replaced(factor=float("inf")),
    "a null pointer": _replaced(bias=None),
    "fewer rows": _replaced(rows=2),
    "no rows": _replaced(rows=0),
    "numbers of NumPy": _replaced(rows=numpy.int64(4), cols=numpy.int32(8), factor=numpy.float32(2)),
    "a bool for an int": _replaced(rows=True),
    "a parameter": _replaced(x=torch.nn.Parameter(X.clone(), requires_grad=False)),
    "int too large for char": _replaced(shift=256),
    "int below zero for unsigned": _replaced(shift=-1),
    "int beyond 64 bits": _replaced(cols=2**64 + 8),
    "int beyond int": _replaced(rows=2**32 + 4),
    "a float for an int": _replaced(rows=4.0),
    "a float beyond float": _replaced(factor=1e39),
    "a string for a float": _replaced(factor="2"),
    "a tensor for a float": _replaced(offset=torch.tensor(0.5)),
    "an int for a bool": _replaced(negate=1),
    "None for an int": _replaced(rows=None),
    "a list for an int": _replaced(rows=[4]),
    "a number for a pointer": _replaced(x=X.data_ptr()),
    "another dtype": _replaced(x=X.double()),
    "not contiguous": _replaced(x=X.t()),
    "sparse": _replaced(x=X.to_sparse()),
    "on another device": _replaced(x=X.to("meta")),
    "memory given up": _replaced(x=FREED),
    "requires grad": _replaced(x=LEAF),
    "overlaps": _replaced(x=SPARE[:32], y=SPARE[31:63]),
    "all on meta": _replaced(x=X.to("meta"), y=X.to("meta"), bias=BIAS.to("meta")),
    "beside": _replaced(x=SPARE[:32], y=SPARE[32:64]),
    "misaligned": _replaced(x=SPARE.view(torch.uint8)[2:130]),
    "too few": GOOD[:-1],
    "too many": (*GOOD, 1),
}


def _outcome(kernel: Kernel, args: tuple) -> Any:
    y = OUT.fill_(-7)
    args = tuple(y if i == 1 and a is None else a for i, a in enumerate(args))
    before = launches()["mix"]
    try:
        kernel(*args)
    except (KforgeError, RuntimeError, TypeError) as error:
        return type(error).__name__, str(error)
    return str(args[1]) if args[1].is_meta else args[1].clone(), launches()["mix"] - before


@pytest.mark.parametrize("name", CALLS)
def test_same_outcome_as_the_python_call(name: str, request: pytest.FixtureRequest) -> None:
    """After good calls, any call gives the same output, count of launches or error as through Python, repeatedly."""
    plain = _kernel()
    for _ in range(3):
        _outcome(plain, GOOD)
    expected = [_outcome(plain, CALLS[name]) for _ in range(3)]
    calls = request.getfixturevalue("native_calls")
    kernel = _kernel()
    for _ in range(3):
        _outcome(kernel, GOOD)
    assert calls.started == 2
    for want in expected:
        got = _outcome(kernel, CALLS[name])
        assert type(got[0]) is type(want[0]) and got[1] == want[1]
        if isinstance(want[0], torch.Tensor):
            assert numpy.array_equal(got[0], want[0], equal_nan=True)
        else:
            assert got == want


@pytest.mark.parametrize("name", ["the same again", "other values", "ints for floats", "a null pointer", "beside"])
def test_native_code_makes_the_repeated_call(name: str, native_calls: NativeCalls) -> None:
    """Calls with plain numbers and tensors are made by native code from the second of their kind on."""
    kernel = _kernel()
    for number in range(4):
        _outcome(kernel, CALLS[name])
        assert native_calls.started == number


def test_values(native_calls: NativeCalls) -> None:
    """What native code packs arrives: values that change from call to call need no new plan."""
    kernel, y = _kernel(), torch.empty(4, 8)
    for n, (factor, offset, shift) in enumerate([(2.0, 0.0, 0), (2.5, -1.0, 255), (-3.0, 7.0, 1)]):
        kernel(X, y, 4, 8, shift, factor, offset, False, BIAS)
        assert torch.equal(y, _expected(X, factor, offset, shift, BIAS))
        assert native_calls.started == n
    assert len(kernel._plans) == 2  # one and its native counterpart


def test_grad_mode_is_seen(native_calls: NativeCalls) -> None:
    """A tensor that requires grad is taken under no_grad, by native code too, and refused outside."""
    kernel, y = _kernel(), torch.empty(4, 8)
    args = (LEAF, y, *GOOD[2:])
    with torch.no_grad():
        for _ in range(3):
            kernel(*args)
    assert native_calls.started == 2
    with pytest.raises(LaunchError, match="argument 'x' requires grad"):
        kernel(*args)
    assert native_calls.started == 2


def test_switches_are_seen(native_calls: NativeCalls) -> None:
    """overrides() and build_only() take hold of calls that native code has made before, and let go again."""
    kernel, y = _kernel(), torch.zeros(4, 8)
    args = (X, y, *GOOD[2:])
    for _ in range(3):
        kernel(*args)
    plain = y.clone()
    for _ in range(3):
        with overrides({"mix": {"SCALE": 100}}):
            kernel(*args)
        assert torch.equal(y, plain + 100)
        y.zero_()
        with build_only():
            kernel(*args)
        assert not y.any()
        kernel(*args)
        assert torch.equal(y, plain)


def test_a_refused_launch_is_made_again_by_python(native_calls: NativeCalls) -> None:
    """Where the driver refuses, native code leaves the call, and its words, to the other path; nothing counts twice."""
    kernel, y = _kernel(), torch.zeros(4, 8)
    args = (X, y, *GOOD[2:])
    kernel(*args)
    native_calls.status = 201
    y.zero_()
    with launches() as counts:
        kernel(*args)
    assert native_calls.started == 1 and counts["mix"] == 1
    assert torch.equal(y, _expected(X, 2.0, 0.5, 3, BIAS))


def test_workspace_and_strided(native_calls: NativeCalls) -> None:
    """The workspace goes to its own parameter, fresh and zeroed; strided views are keyed by shape and strides."""
    source = """\
extern "C" __global__ void total(const float* x, float* workspace, float* y, int n, long long step) {
    for (int i = 0; i < n; ++i) workspace[0] += x[i * step];
    y[0] = workspace[0] + n;
}
"""
    kernel = Kernel("total", source, block=1, workspace=4, zeroed=True, strided=("x",))
    x, y = torch.arange(12.0), torch.zeros(1)
    for _ in range(3):
        for view in (x, x[::2], x[::3], x.view(3, 4)[:, 1]):
            kernel(view, y, view.numel(), view.stride(0))
            assert y.item() == view.sum().item() + view.numel()
    assert native_calls.started == 8


def _status(**environment: str) -> str:
    script = "from kforge.kernel import native; print(native.load()[1])"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_what_stands_in_the_way_is_named(tmp_path: Path) -> None:
    """Switched off, without a compiler, with one that fails, in a read-only cache: no native call, and the reason."""
    empty = tmp_path / "bin"
    empty.mkdir()
    cache = str(tmp_path / "cache")
    assert _status(KFORGE_NATIVE="0") == "switched off by KFORGE_NATIVE=0"
    assert _status(KFORGE_CACHE=cache, PATH=str(empty)) == "no C compiler (cc, gcc, clang)"
    assert _status(KFORGE_CACHE=cache, CC="false").endswith("false does not build the native call: exit status 1")
    assert "not in the read-only cache" in _status(KFORGE_CACHE=cache, KFORGE_CACHE_READ_ONLY="1")
    assert not list((tmp_path / "cache" / "native").glob("*/kforge_call.so"))


@pytest.mark.skipif(native.load()[0] is None, reason=native.load()[1])
def test_built_once(tmp_path: Path) -> None:
    """The library is built into the cache once and loaded from there, read-only too."""
    cache = str(tmp_path / "cache")
    path = _status(KFORGE_CACHE=cache)
    written = Path(path).stat().st_mtime_ns
    assert _status(KFORGE_CACHE=cache, KFORGE_CACHE_READ_ONLY="1", PATH="") == path
    assert Path(path).stat().st_mtime_ns == written


def test_nothing_is_kept_or_let_go(native_calls: NativeCalls) -> None:
    """Calls that native code makes, and calls that it leaves alone half way, keep no reference and drop none."""
    kernel, y = _kernel(), torch.empty(4, 8)
    good = (X, y, *GOOD[2:])
    left = [_replaced(y=y, cols=2**64 + 8), _replaced(y=y, factor="2"), _replaced(x=X.to_sparse(), y=y)]
    for _ in range(3):
        kernel(*good)
    objects = [
        X,
        y,
        BIAS,
        True,
        None,
        torch.float32,
        torch.Tensor,
        kernel.name,
        *kernel._plans,
        *kernel._plans.values(),
    ]
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(500):
        assert kernel._native(kernel._plans, good)  # type: ignore[misc]
        for args in left:
            assert not kernel._native(kernel._plans, args)  # type: ignore[misc]
    assert all(abs(sys.getrefcount(o) - n) < 100 for o, n in zip(objects, before, strict=True))


def test_threads(native_calls: NativeCalls) -> None:
    """Threads that call at once get their own arguments through."""
    kernel = _kernel()
    storage = torch.zeros(8, 1024)  # rows of one alignment
    outputs = [storage[i, :32].view(4, 8) for i in range(8)]
    kernel(X, outputs[0], *GOOD[2:])

    def work(i: int) -> None:
        for _ in range(50):
            kernel(X, outputs[i], 4, 8, i, float(i), 0.5, False, BIAS)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert native_calls.started >= 350
    for i, y in enumerate(outputs):
        assert torch.equal(y, _expected(X, float(i), 0.5, i, BIAS))
