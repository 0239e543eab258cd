"""Reads the emulator's switches from the environment, in one place.

KFORGE_EMULATOR          fast (default) | order:N | checked | traced
KFORGE_EMULATOR_SECONDS  time limit of one launch (default 60)
KFORGE_EMULATOR_THREADS  OS threads that blocks are spread over (default: the processors of this process)
KFORGE_EMULATOR_STRICT   1: a barrier that exited threads never reach is an error (CUDA accepts it since sm_70)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from kforge.errors import UsageError


class Kind(Enum):
    """What a build is instrumented with."""

    FAST = "fast"
    CHECKED = "checked"
    TRACED = "traced"


class Order(Enum):
    """Thread orders; every number above 2 is a random order with that seed."""

    LOCK_STEP = 0
    GREEDY = 1
    REVERSED = 2
    RANDOM = 3


@dataclass(frozen=True)
class Mode:
    """kind: the build; order: the thread order of its launches (see Order)."""

    kind: Kind = Kind.FAST
    order: int = 0

    @classmethod
    def parse(cls, text: str) -> Mode:
        """`fast`, `checked`, `traced`, `order:N`, `checked:N`, `traced:N`. UsageError on anything else."""
        name, _, number = text.partition(":")
        kinds = {"fast": Kind.FAST, "order": Kind.FAST, "checked": Kind.CHECKED, "traced": Kind.TRACED}
        if name not in kinds or (number and not number.isdigit()) or (name == "order" and not number):
            raise UsageError(f"unknown emulator mode '{text}'", "KFORGE_EMULATOR is fast, checked, traced, or order:N")
        return cls(kinds[name], int(number or 0))

    @property
    def text(self) -> str:
        """As KFORGE_EMULATOR names it."""
        name = "order" if self.kind is Kind.FAST else self.kind.value
        return f"{name}:{self.order}"


def current_mode() -> Mode:
    """The mode that KFORGE_EMULATOR names."""
    return Mode.parse(os.environ.get("KFORGE_EMULATOR", "fast"))


_order: int | None = None


@contextmanager
def thread_order(order: int) -> Iterator[None]:
    """Within, launches that ask for no order of their own take this one (see Order)."""
    global _order
    before, _order = _order, order
    try:
        yield
    finally:
        _order = before


def current_order(mode: Mode) -> int:
    """The thread order of a launch that asks for none."""
    return mode.order if _order is None else _order


def time_limit() -> float:
    """Seconds that one launch may take."""
    return _number("KFORGE_EMULATOR_SECONDS", 60.0)


def worker_threads() -> int:
    """OS threads for blocks that may run side by side."""
    return max(1, int(_number("KFORGE_EMULATOR_THREADS", float(len(os.sched_getaffinity(0))))))


def strict_exits() -> bool:
    """Whether a barrier that exited threads never reach is an error."""
    return os.environ.get("KFORGE_EMULATOR_STRICT") == "1"


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise UsageError(f"{name} must be a number, not '{text}'") from None
