"""What a candidate is compared with: ways to run the reference that cost the user one line. A registry of makers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kforge.errors import UsageError

Maker = Callable[[Any], Callable[..., Any]]


def _eager(module: Any) -> Callable[..., Any]:
    return module  # type: ignore[no-any-return]


def _compiled(mode: str | None) -> Maker:
    def make(module: Any) -> Callable[..., Any]:
        import torch

        return torch.compile(module, mode=mode, dynamic=False)  # type: ignore[no-any-return]

    return make


BASELINES: dict[str, Maker] = {
    "eager": _eager,
    "compile_default": _compiled(None),
    "compile_reduce_overhead": _compiled("reduce-overhead"),
    "compile_max_autotune": _compiled("max-autotune-no-cudagraphs"),
}
DECIDING = ("eager", "compile_default")  # these decide "no room" and a provisional verdict (CONTRACTS 5)


def make_baseline(name: str, module: Any) -> Callable[..., Any]:
    """A callable with the reference's parameters. Compilation happens in its first call, which the caller makes.

    "graph" is a wrapper of the timer and no baseline of its own. UsageError names what exists.
    """
    if name not in BASELINES:
        raise UsageError(f"unknown baseline {name!r}", f"available: {', '.join(BASELINES)}")
    return BASELINES[name](module)
