"""What a report proves about inputs: which variants, which sizes, which mode; the rest is outside of the domain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.task import Task

_CASE = re.compile(r"variant (\d+)")


def unjudged_kernels(names: Iterable[str], report: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Kernels that no case launched: what they compute was never compared. Empty where nobody counted."""
    builds = (report or {}).get("builds") or ()
    if not any(b.get("launches") for b in builds):
        return ()
    judged = {b["name"] for b in builds if b.get("launches") != 0}
    return tuple(n for n in names if n not in judged)


def size_range(sizes: Any) -> tuple[int, int]:
    """(least, most)."""
    found = [int(n) for n in sizes]
    return min(found), max(found)


def judged_variants(report: Mapping[str, Any] | None) -> set[int]:
    """Numbers of the input variants of which a case passed."""
    cases = (report or {}).get("cases", ())
    return {int(m[1]) for c in cases if c["passed"] and (m := _CASE.match(c["label"]))}


def judged_sizes(report: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Per tensor input the least and the largest size of each dimension that the report's passed cases had.

    names: of the candidate's inputs; where these are not the reference's, the inputs are told by their order. Empty for
    a report that does not say.
    """
    found = {
        name: tuple((low, high) for low, high in pairs) for name, pairs in ((report or {}).get("sizes") or {}).items()
    }
    if not set(names) <= found.keys():
        found = dict(zip(names, found.values(), strict=True)) if len(found) == len(names) else {}
    return {name: found[name] for name in names if name in found}


def judged_mode(task: Task, reference: Any) -> str | None:
    """ "train" or "eval" where it changes what the reference computes, as far as can be told: else None."""
    dependent = "training" in task.source or any(
        re.search(r"Dropout|BatchNorm|InstanceNorm|RReLU", type(child).__name__) and hasattr(child, "training")
        for child in list(reference.modules())[1:]
    )
    return ("train" if reference.training else "eval") if dependent else None


def slower_shapes(
    calls: Mapping[int, Mapping[str, Any] | None], report: Mapping[str, Any] | None
) -> tuple[dict[str, tuple[int, ...]], ...]:
    """The shapes of the variants whose verdict is SLOWER: they stay with the reference."""
    import torch

    found = []
    for variant in (report or {}).get("variants", ()):
        match = re.search(r"variant (\d+)", variant["label"])
        call = calls.get(int(match[1])) if match else None
        if variant["verdict"] == "slower" and call is not None:
            found.append({n: tuple(v.shape) for n, v in call.items() if isinstance(v, torch.Tensor)})
    return tuple(found)
