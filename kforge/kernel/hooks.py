"""What the environment may switch around kernels: overrides of constants, build-only calls, launch counts.

Process-wide, as a candidate's child runs one thing at a time. Kernels compare `state` by identity on each call, which
costs 30 ns, and go the slow way after it changed.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.kernel.prepare import Constant

if TYPE_CHECKING:
    from kforge.kernel.kernel import Kernel
    from kforge.kernel.plan import Plan


# recorder(kernel, plan, args, values), right before a launch that Python makes
Recorder = Callable[["Kernel", "Plan", tuple[Any, ...], list[Any]], None]


@dataclass(frozen=True, eq=False)
class State:
    """The switches in force."""

    overrides: Mapping[str, Mapping[str, Constant]] = field(default_factory=dict)
    build_only: bool = False
    recorder: Recorder | None = None

    def of(self, kernel: str) -> Mapping[str, Constant]:
        """The overridden constants of a kernel."""
        return self.overrides.get(kernel, {})


class LaunchCounts(Counter[str]):
    """Launches per kernel name since the last reset. As a context manager it resets on entry."""

    def reset(self) -> None:
        """Start counting from zero."""
        self.clear()

    def __enter__(self) -> LaunchCounts:
        self.reset()
        return self

    def __exit__(self, *exc: object) -> None:
        return None


state = State()
launched = LaunchCounts()
_kernels: list[weakref.ref[Kernel]] = []


def launches() -> LaunchCounts:
    """The live launch counts: `launches()["softmax"]`, `launches().reset()`, or `with launches() as counts:`."""
    return launched


@contextlib.contextmanager
def overrides(constants: Mapping[str, Mapping[str, Constant]]) -> Iterator[None]:
    """Within, the kernels named start from these constants: `overrides({"softmax": {"BLOCK": 512}})`.

    They win over the declared and the tuned ones; `require` still applies to them. A kernel may be named as it is
    declared: "softmax<T, BLOCK>" is the kernel softmax.
    """
    named = {declared.partition("<")[0].rsplit("::", 1)[-1].strip(): values for declared, values in constants.items()}
    merged = {**state.overrides, **{k: {**state.of(k), **v} for k, v in named.items()}}
    with _switched(State(merged, state.build_only, state.recorder)):
        yield


@contextlib.contextmanager
def build_only() -> Iterator[None]:
    """Within, a call checks its arguments and builds what it needs, and does not launch (the *warm* step)."""
    with _switched(State(state.overrides, True)):
        yield


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Within, the first launch of each kind is shown to `recorder` right before it is made."""
    with _switched(State(state.overrides, state.build_only, recorder)):
        yield


@contextlib.contextmanager
def _switched(new: State) -> Iterator[None]:
    global state
    before, state = state, new
    try:
        yield
    finally:
        state = before


def kernels() -> list[Kernel]:
    """The Kernels alive in this process, in order of construction."""
    return [k for ref in _kernels if (k := ref()) is not None]


def remember(kernel: Kernel) -> None:
    """Called by each Kernel when it is constructed."""
    _kernels[:] = [ref for ref in _kernels if ref() is not None]
    _kernels.append(weakref.ref(kernel))
