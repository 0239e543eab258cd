"""Outputs that are parts of computed tensors: torch returns a view with gaps, and a candidate a result that lies so."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from kforge.engine.graph.strides import Dense, Image, Joined, Layout, Seen, Viewed, inputs_of
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Tensor
from kforge.engine.graph.viewing import lies

STEPS = {"slice", "select", "permute", "transpose", "t", "unsqueeze", "squeeze", "view", "alias", "detach"}
SPLITS = {"split_with_sizes", "split", "chunk"}


def gaps_of(node: Any, values: Mapping[Any, Any], seen: bool) -> Seen | None:
    """The strides of an output that is a view with gaps; None where it has none, or no rule tells them.

    seen: whether it has gaps as captured. Others have some only where an input lies in another order: a part of what
    lies so.
    """
    if not seen and not _is_part(node):
        return None
    rule = cut_layout(node, values)
    return None if rule is None or not (seen or inputs_of(rule)) else Seen(rule, always=seen)


def _is_part(node: Any) -> bool:
    """Whether a node is a view that leaves out some of what is computed."""
    whole = node
    while (below := _source(whole)) is not None:
        whole = below
    if whole is node or not all(isinstance(s, int) for s in whole.meta["val"].shape):  # a size that depends on data
        return False
    return node.meta["val"].numel() < whole.meta["val"].numel()


def cut_layout(node: Any, values: Mapping[Any, Any]) -> Layout | None:
    """The strides of a view of what another node computes; None where it is none that a rule can tell."""
    below = _source(node)
    if below is None:
        tensor = values.get(node)
        if node.op != "call_function" or not isinstance(tensor, Tensor) or _packet(node) == "expand":
            return None
        own = lies(tensor)
        if own is not None and inputs_of(own):
            return own if isinstance(own, Image) else Joined((own,))
        return Dense(tensor.shape) if node.meta["val"].is_contiguous() else None
    of, (given, result) = cut_layout(below, values), (values.get(n) for n in (below, node))
    if of is None or not isinstance(given, Tensor) or not isinstance(result, Tensor):
        return None
    packet, rank = _packet(node), len(given.shape)
    if packet in ("alias", "detach"):
        return of
    if packet == "slice" and len(node.args) > 4 and node.args[4] != 1:
        dim, step = node.args[1] % rank, node.args[4]
        return Viewed(of, "stepped", (dim, step, result.shape[dim] * step - (step - 1)))
    if packet == "slice" or node.target is operator.getitem:
        ends: list[Poly | int] = [0 if a == b else b for a, b in zip(given.shape, result.shape, strict=True)]
        return Viewed(of, "cut", tuple(ends)) if any(isinstance(end, Poly) for end in ends) else of
    if packet == "select":
        return Viewed(of, "select", (node.args[1] % rank, 0))
    if packet == "unsqueeze":
        return Viewed(of, "unsqueeze", (node.args[1],))
    if packet in ("view", "squeeze"):
        return Viewed(of, "reshape", result.shape)
    order = list(range(rank))
    if packet == "permute":
        order = [d % rank for d in node.args[1]]
    elif packet == "transpose":
        a, b = node.args[1] % rank, node.args[2] % rank
        order[a], order[b] = order[b], order[a]
    else:
        order.reverse()
    return Viewed(of, "permute", tuple(order))


def _packet(node: Any) -> str:
    return str(node.target).removeprefix("aten.").partition(".")[0] if node.op == "call_function" else ""


def _source(node: Any) -> Any:
    """What a node looks at; None where it computes."""
    if getattr(node, "op", "") == "call_function" and node.target is operator.getitem:
        whole = node.args[0]
        return whole.args[0] if _packet(whole) in SPLITS else None
    return node.args[0] if getattr(node, "op", "") == "call_function" and _packet(node) in STEPS else None
