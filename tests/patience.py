"""How long a test waits for what must come: a guard against waiting for ever, and nothing that a test measures."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 600.0  # a machine that does other work too may be slower by any factor
T = TypeVar("T")


def until(true: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The first true answer; AssertionError where none comes."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"not so within {seconds:g} s"
        time.sleep(0.01)
    return found
