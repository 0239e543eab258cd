"""What a report proves about inputs: which variants, which sizes, which mode; the rest is outside of the domain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.task import Task

_CASE = re.compile(r"variant (\d+)(?:, shape ([^,]+))?")


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


def judged_sizes(
    task: Task, calls: Mapping[int, Mapping[str, Any] | None], report: Mapping[str, Any] | None
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Per tensor input the least and the largest size of each dimension that the report's passed cases had."""
    import torch

    from kforge.environment.preparation import Prepared
    from kforge.environment.shapes import derive

    if report is None:
        return {}
    cases = {m.groups() for c in report["cases"] if c["passed"] and (m := _CASE.match(c["label"]))}
    prepared = None
    found: dict[str, list[tuple[int, ...]]] = {}
    for text, kind in sorted(cases, key=lambda c: (c[0], c[1] or "")):
        variant = int(text)
        if variant >= task.n_variants:
            continue
        call = calls[variant]
        if call is None:
            continue
        leaves = {n: v for n, v in call.items() if isinstance(v, torch.Tensor)}
        shapes: dict[str, tuple[int, ...]] = {n: tuple(v.shape) for n, v in leaves.items()}
        if kind is not None and kind != "given":
            prepared = prepared or Prepared(task, "cpu", task.path.parent)
            sizes = prepared.sizes(variant)
            new = derive(sizes, kind)
            if new is None or len(sizes.symbols) != len(leaves):
                continue
            resized = [
                tuple(n if s is None else new[s] for s, n in zip(symbols, shape, strict=True))
                for symbols, shape in zip(sizes.symbols, sizes.shapes, strict=True)
            ]
            shapes = dict(zip(leaves, resized, strict=True))
        for name, shape in shapes.items():
            found.setdefault(name, []).append(shape)
    return {n: tuple(size_range(s[d] for s in shapes) for d in range(len(shapes[0]))) for n, shapes in found.items()}


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
