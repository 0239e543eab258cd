"""What Hopper refuses, or leaves undefined, of wgmma, registers and clusters is an error; what is allowed runs.

In mode traced, which alone knows who stored what: one build for all."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from kforge.errors import EmulatorError
from kforge.kernel.emulator import Program, load
from tests.kernel.emulator.conftest import SOURCES, run

ALLOWED = [
    ("goes_on", 1, 128, 32),
    ("starts_again", 1, 128, 16),
    ("enough_registers", 1, 384, 1),
    ("waits_for_others", 2, 1, 1),
]
REFUSED = [
    ("without_fence", 1, 128, "without wgmma.fence before they are added to"),
    ("between_patterns", 1, 128, "swizzled by 128 bytes begins at byte 384 of shared memory, no multiple of 1024"),
    ("not_seen", 1, 128, "stored to without fence.proxy.async since"),
    ("too_many_registers", 1, 384, "have 520 registers a thread together, a block of 384 threads at most 504"),
    ("odd_registers", 1, 128, "setmaxnreg of 44 registers"),
    ("ends_first", 2, 1, "the shared memory of a block that has ended"),
]


@lru_cache(maxsize=1)
def program() -> Program:
    names = [case[0] for case in (*ALLOWED, *REFUSED)]
    return load((SOURCES / "hopper.cu").read_text(), "hopper.cu", names, mode="traced")


@pytest.mark.parametrize(("kernel", "grid", "block", "value"), ALLOWED)
def test_what_is_allowed(kernel, grid, block, value):
    """Sums go on without a fence while nobody writes them, matrices begin within a line, blocks wait at the end."""
    y = np.zeros(1, np.float32)
    run(program(), kernel, grid, block, y, cluster=(grid, 1, 1))
    assert y[0] == value


@pytest.mark.parametrize(("kernel", "grid", "block", "words"), REFUSED)
@pytest.mark.parametrize("order", [0, 1])
def test_what_is_refused(kernel, grid, block, words, order):
    """Each is an error that says so, in either order of threads."""
    with pytest.raises(EmulatorError, match=words):
        run(program(), kernel, grid, block, np.zeros(1, np.float32), cluster=(grid, 1, 1), order=order)
