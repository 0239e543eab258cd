"""Programs of the sources beside this file, each built once per session, and numpy arrays as kernel arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kforge.kernel.emulator import Program, load

SOURCES = Path(__file__).parent / "sources"
Launch = Callable[..., None]


def argument(value: Any) -> Any:
    """An array as a pointer, an int as int32, a float as fp32, a ctypes value as itself."""
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        return ctypes.c_int(value)
    return ctypes.c_float(value) if isinstance(value, float) else value


def dims(value: int | Sequence[int]) -> tuple[int, int, int]:
    """One to three numbers as (x, y, z)."""
    given = (value,) if isinstance(value, int) else tuple(value)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def run(program: Program, kernel: str, grid: Any, block: Any, *args: Any, shared: int = 0, **options: Any) -> None:
    """Launches `kernel` with numpy arrays and Python numbers."""
    program.launch(kernel, dims(grid), dims(block), shared, [argument(a) for a in args], **options)


def program_of(name: str, kernels: Sequence[str]) -> Program:
    """The named kernels of sources/<name>.cu."""
    return load((SOURCES / f"{name}.cu").read_text(), f"{name}.cu", list(kernels), mode="fast")


WARPS = (
    "shuffles", "shuffle_types", "votes", "barrier_votes", "sums<float, 64>", "sums<double, 128>", "transpose",
    "dynamic", "file_scope", "in_macro", "unwritten", "early_exit", "handoff", "named_barriers",
)  # fmt: skip
VALUES = (
    "integers", "floats", "halves", "vectors", "atomics", "last_block", "scaled::scale<float>",
    "scaled::scale<double, 3>", "by_value", "look_back", "indices", "language",
)  # fmt: skip
GROUPS = (
    "tiles", "grid_sync", "cluster_sum", "wmma_product<__nv_bfloat16, float>", "wmma_product<__half, __half>",
    "wmma_product<signed char, int>", "ptx_product", "ptx_scalars", "pipeline", "group_copy",
)  # fmt: skip
ERRORS = (
    "divergent", "deadlock", "not_in_mask", "different_masks", "exits_early", "endless", "spins", "asserts", "traps",
    "grid_wide", "tensor_core", "fine", "wrong_wmma_rank", "vector_read", "vector_write",
)  # fmt: skip
WAITS = ("split_row<64>", "look_back", "from_the_last", "by_atomics", "never", "patient", "all_at_once")
KERNELS = {"warps": WARPS, "values": VALUES, "groups": GROUPS, "errors": ERRORS, "waits": WAITS}


@lru_cache(maxsize=8)
def _program(name: str) -> Program:
    return program_of(name, KERNELS[name])


@pytest.fixture
def launch(request: pytest.FixtureRequest) -> Launch:
    """Launches a kernel of the source that the test module names in SOURCE."""

    def call(kernel: str, grid: Any, block: Any, *args: Any, **options: Any) -> None:
        run(_program(request.module.SOURCE), kernel, grid, block, *args, **options)

    return call
