"""The guard allocator's bookkeeping, over host memory in place of the driver: patterns, bands, captures, peaks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kforge.worker import guard
from kforge.worker.poison import PATTERNS, ZEROS
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
HEAD = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
library = ctypes.CDLL(sys.argv[1])
library.kforge_guard_alloc.restype = ctypes.c_void_p
library.kforge_guard_alloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
library.kforge_guard_free.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
library.kforge_guard_peak.restype = ctypes.c_ulonglong
def number(name): return ctypes.c_int.in_dll(driver, name)
def alloc(n): return library.kforge_guard_alloc(n, 0, None)
def free(p): library.kforge_guard_free(p, 0, 0, None)
def check():
    text = ctypes.create_string_buffer(2048)
    library.kforge_guard_check(text, 2048)
    return text.value.decode()
library.kforge_guard_pattern(0x7F, 0xFE)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in driver under the driver's name."""
    folder = tmp_path_factory.mktemp("driver")
    flags = ["-shared", "-fPIC", "-O1", str(HERE / "stand_in_driver.cpp"), "-o", str(folder / "libcuda.so.1")]
    subprocess.run(["g++", *flags], check=True)
    return folder


def run(place: Path, *lines: str) -> list[str]:
    """What the script prints, line by line."""
    script = HEAD + "\n".join(lines)
    command = [sys.executable, "-c", script, str(guard.library())]
    out = subprocess.run(
        command, env={"LD_LIBRARY_PATH": str(place)}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert out.returncode == 0, out.stderr
    return out.stdout.splitlines()


def test_fresh_memory_holds_the_pattern_and_its_bands_another(place: Path) -> None:
    """Every byte asked for has the pattern; the bytes before and after have another, whatever the size."""
    lines = (
        "for n in (1, 511, 512, 5000):",
        "    p = alloc(n)",
        "    data = ctypes.string_at(p, n)",
        "    print(set(data) == {0x7F}, ctypes.string_at(p - 1, 1)[0], ctypes.string_at(p + n, 1)[0], p % 512)",
    )
    assert run(place, *lines) == ["True 254 254 0"] * 4


def test_bands_hold_nan_under_one_pattern_and_neither_pattern_itself() -> None:
    """A read beyond an allocation shows even with a weight of 0: its value is NaN in every floating format."""
    assert set(guard.BANDS) == {*PATTERNS, ZEROS} and all(pattern != band for pattern, band in guard.BANDS.items())
    raw = torch.full((8,), guard.BANDS[PATTERNS[0]], dtype=torch.uint8)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        assert bool((raw.view(dtype) * 0.0).isnan().all())


def test_a_write_beyond_an_allocation_is_told_once(place: Path) -> None:
    """Past the end, before the start, also when the memory was freed before the look; nothing for right writes."""
    lines = (
        "p = alloc(1000); ctypes.memset(p, 1, 1000); print(check() or 'clean')",
        "ctypes.memset(p + 1000, 1, 4); print(check())",
        "q = alloc(64); ctypes.memset(q - 8, 0, 8); free(q); print(check().split('; ')[-1])",
        "free(p); check(); r = alloc(8); print(check() or 'clean')",
    )
    assert run(place, *lines) == [
        "clean",
        "4 bytes written past the end of an allocation of 1000 bytes, the first at +0",
        "8 bytes written before an allocation of 64 bytes, the first 8 ahead of it",
        "clean",
    ]


def test_freed_memory_goes_back_at_the_look_unless_a_graph_holds_it(place: Path) -> None:
    """Kernels may still use what was freed, and a graph for as long as it lives; allocating while capturing works."""
    lines = (
        "p = alloc(100); free(p); print(number('held').value); check(); print(number('held').value)",
        "number('capturing').value = 1; p = alloc(100); print(ctypes.string_at(p, 1)[0]); free(p)",
        "number('capturing').value = 0; check(); print(number('held').value)",
        "ctypes.memset(p + 100, 0, 1); print(check())",
    )
    told = "1 bytes written past the end of an allocation of 100 bytes, the first at +0"
    assert run(place, *lines) == ["1", "0", "127", "1", told]


def test_the_peak_counts_what_was_asked_for(place: Path) -> None:
    """From `begin` on, the most bytes held at once, bands left out."""
    lines = (
        "a = alloc(1000); library.kforge_guard_begin()",
        "b = alloc(300); free(b); c = alloc(200); d = alloc(50); print(library.kforge_guard_peak())",
    )
    assert run(place, *lines) == ["300"]


def test_too_much_memory_is_an_error_in_words(place: Path) -> None:
    """The error of an allocation that fails ends that call; through ctypes, where nobody catches it, the process."""
    script = HEAD + "alloc(1 << 40)"
    command = [sys.executable, "-c", script, str(guard.library())]
    out = subprocess.run(
        command, env={"LD_LIBRARY_PATH": str(place)}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert out.returncode != 0 and "CUDA out of memory: 1099511627776 bytes were asked for" in out.stderr
