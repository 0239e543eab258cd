"""Operators that a dispatch mode does not see, because the candidate switched the modes off around them.

torch's dispatcher announces every operator to its record functions, and so does the mode itself: what is announced
outside of a mode's range was hidden from it. Of this thread only, as the mode is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

MODE = "PythonDispatchMode"  # the range in which a mode handles an operator
HIDDEN = "hidden"  # stands where the overload's name does: "aten.gelu.hidden"
COMPOSITE = "CompositeImplicitAutograd"
_OPERATOR = 0  # scope of an event; ranges that a user names have another


class Beneath:
    """`start` and `stop` around a call; `stop` gives the hidden operators and how often each was called.

    Legacy events cost 0.1 ms a call and nothing before it; the newer profiler would load CUPTI. announced: whether a
    mode's range was among the events; where an operator was seen and none was, this torch cannot tell what is hidden.
    """

    announced = False
    _running = False

    def start(self) -> None:
        try:
            from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy
            from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

            nothing_more = (False, False, False, False, False)
            config = ProfilerConfig(ProfilerState.CPU, *nothing_more, _ExperimentalConfig())
        except (ImportError, AttributeError, TypeError):  # private names of torch: without them nothing is announced
            return
        self._stop = _disable_profiler_legacy
        _enable_profiler_legacy(config)
        self._running = True

    def stop(self) -> dict[str, int]:
        found: dict[str, int] = {}
        if not self._running:
            return found
        for events in self._stop():
            self.announced = self.announced or any(_is_mode(event) for event in events)
            for name in hidden(events):
                found[name] = found.get(name, 0) + 1
        return found


def _is_mode(event: Any) -> bool:
    return bool(event.kind() == "push" and event.name() == MODE and event.scope() == _OPERATOR)


def hidden(events: Any) -> Iterator[str]:
    """Names of operators outside of every mode's range that none of their parts brings before a mode.

    events: pushes and pops in order. An operator made of others (composite) is no work of its own; of any other only
    the outermost counts.
    """
    stack: list[list[Any]] = []  # name, whether inside a mode's range or a hidden operator, whether a mode saw a part
    for event in events:
        kind = event.kind()
        if kind == "push":
            inside = bool(stack) and stack[-1][1]
            is_mode = _is_mode(event)
            work = not inside and not is_mode and _is_work(event.name())
            if is_mode:
                for entry in stack:
                    entry[2] = True
            stack.append([event.name() if work else "", inside or is_mode or work, is_mode])
        elif kind == "pop" and stack:
            name, _, seen = stack.pop()
            if name and not seen:
                yield name.replace("::", ".") + f".{HIDDEN}"


@cache
def _is_work(name: str) -> bool:
    """Whether an event is an operator with a kernel of its own."""
    import torch

    if "::" not in name:
        return False
    overloads = registered().get(name, ())
    return bool(overloads) and not any(
        torch._C._dispatch_has_kernel_for_dispatch_key(overload, COMPOSITE) for overload in overloads
    )


@cache
def registered() -> dict[str, list[str]]:
    """Operators of the dispatcher with their overloads; read once, before processes are forked."""
    import torch

    found: dict[str, list[str]] = {}
    for overload in torch._C._dispatch_get_all_op_names():
        found.setdefault(overload.partition(".")[0], []).append(overload)
    return found
