"""Where integer and boolean outputs come from, read off the captured graph, so that each is judged by its own rule.

argmax, topk and sort by the fp64 value at the index, comparisons by their fp64 margin, casts from floats by rounding;
everything else must be equal. The values needed are extra outputs of the captured graph, run as fp64 and as baseline.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kforge.environment.discrete import judge_booleans, judge_equal, judge_indices, judge_rounded
from kforge.environment.ties import COMPARISONS, ERRORS, SELECTING, Inner, Nudged, operator, same

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from kforge.task import Call, Capture


class Rule(StrEnum):
    """How a discrete output is judged."""

    EQUAL = "equal"
    ROUNDED = "rounded"
    COMPARED = "compared"
    INDEX = "index"


@dataclass(frozen=True)
class Source:
    """Rule of one output. nodes: names of the graph's nodes whose values it needs (one, or two for a comparison).

    given: a comparison of inputs as they are, or selected from, where nothing is computed and so nothing may differ.
    """

    rule: Rule
    nodes: tuple[str, ...] = ()
    constant: float = 0.0  # right side of a comparison with a number
    dim: int | None = None
    first_of_ties: bool = True
    given: bool = False


EQUAL = Source(Rule.EQUAL)
_PASSING = {"alias", "clone", "detach", "squeeze", "unsqueeze", "lift_fresh_copy"}
_INDEX_OPS = {"argmax": True, "argmin": True, "max": True, "min": True, "topk": False, "sort": False}
_INDEX_OPS |= {
    "kthvalue": False,
    "median": False,
    "nanmedian": False,
    "mode": False,
}  # torch documents that any of their ties may come
_ROUNDINGS = {"round", "floor", "ceil", "trunc"}
_KEEPING = {"clamp", "clamp_min", "clamp_max", "minimum", "maximum", "relu", "neg", "add", "sub", "mul"}  # integers


def sources(capture: Capture) -> tuple[Source, ...]:
    """One rule for each output leaf of the capture, in order; EQUAL where the graph says nothing more."""
    output = next(n for n in capture.graph.nodes if n.op == "output")
    return tuple(_source(node) for node in output.args[0][len(capture.mutations) :])


def _source(node: Any) -> Source:
    value = getattr(node, "meta", {}).get("val")
    if value is None or value.dtype.is_floating_point or value.dtype.is_complex:
        return EQUAL
    part = None
    while node.op == "call_function":
        name = operator(node)
        if name == "getitem":
            part = node.args[1]
            node = node.args[0]
            continue
        if name in _INDEX_OPS and (part == 1 or name.startswith("arg")):
            return _index(node, name)
        if name in COMPARISONS:
            return _comparison(node)
        if name == "_to_copy" and _is_float(node.args[0]):
            return Source(Rule.ROUNDED, (_before_rounding(node.args[0]).name,))
        if name not in _PASSING and name != "_to_copy":
            return EQUAL
        node = node.args[0]
    return EQUAL


def _unclamped(node: Any, constant: float) -> Any:
    """What relu or a lower clamp was given, where the comparison is with a number at or above its floor.

    Its own values tie with the floor exactly, half of them, and an exact tie would forgive either answer.
    """
    while node.op == "call_function":
        name = operator(node)
        floor, *top = node.args[1:] if name in ("clamp", "clamp_min") else [0.0 if name == "relu" else None]
        if any(limit is not None for limit in top) or not isinstance(floor, (int, float)) or floor > constant:
            break
        node = node.args[0]
    return node


def _is_selected(node: Any) -> bool:
    """Whether a value is an input, or made of inputs by operators whose results are exact."""
    if getattr(node, "op", "") != "call_function":
        return getattr(node, "op", "placeholder") == "placeholder"
    parts = [part for arg in node.args for part in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return operator(node) in SELECTING and all(_is_selected(part) for part in parts if hasattr(part, "op"))


def _before_rounding(node: Any) -> Any:
    """What an operator rounded into the value that is cast (clamped, shifted): there the edges lie, not at integers."""
    waiting = [node]
    while waiting:
        found = waiting.pop(0)
        if getattr(found, "op", "") != "call_function" or not _is_float(found):
            continue
        name = operator(found)
        if name in _ROUNDINGS:
            return found.args[0]
        if name in _KEEPING:
            waiting += found.args[:2]
    return node


def _is_float(node: Any) -> bool:
    value = getattr(node, "meta", {}).get("val")
    return value is not None and bool(value.dtype.is_floating_point)


def _index(node: Any, name: str) -> Source:
    source = node.args[0]
    position = {"topk": 2, "kthvalue": 2}.get(name, 1)
    default = None if name.startswith("arg") else -1
    dim = node.args[position] if len(node.args) > position else node.kwargs.get("dim", default)
    stable = name == "sort" and node.kwargs.get("stable") is True
    return Source(Rule.INDEX, (source.name,), dim=dim, first_of_ties=_INDEX_OPS[name] or stable)


def _comparison(node: Any) -> Source:
    left, right = node.args[:2]
    if not _is_float(left):
        return EQUAL
    if isinstance(right, (int, float)):
        left = _unclamped(left, float(right))
        return Source(Rule.COMPARED, (left.name,), constant=float(right), given=_is_selected(left))
    given = _is_selected(left) and _is_selected(right)
    return Source(Rule.COMPARED, (left.name, right.name), given=given) if _is_float(right) else EQUAL


class Intermediates:
    """The inner values that discrete outputs are judged by, in fp64 and as the baseline computes them."""

    def __init__(self, capture: Capture) -> None:
        import torch
        from torch.utils import _pytree as pytree

        from kforge.task import promote

        self.sources = sources(capture)
        self.names = tuple(dict.fromkeys(name for source in self.sources for name in source.nodes))
        if not self.names:
            return
        told = any(source.rule in (Rule.COMPARED, Rule.INDEX) and not source.given for source in self.sources)
        self._nudged = Nudged(capture, self.names) if told and promote(capture).method == "graph" else None
        self._all = (*self.names, *(self._nudged.gates if self._nudged else ()))
        graph_module = copy.deepcopy(capture.module)
        nodes = {n.name: n for n in graph_module.graph.nodes}
        output = next(n for n in graph_module.graph.nodes if n.op == "output")
        output.args = (tuple(nodes[name] for name in self._all),)
        graph_module.recompile()
        spec = pytree.tree_structure([0] * len(self._all))
        self._capture = replace(capture, graph_module=graph_module, mutations=(), out_spec=spec)
        self._promoted = promote(self._capture)
        self._baseline = torch.fx.Interpreter(graph_module)

    def values(self, module: torch.nn.Module, call: Call, seed: int) -> dict[str, Inner]:
        """By node name. Neither module nor call is changed."""
        import torch

        from kforge.task import clone_call
        from kforge.task.task import seeded

        if not self.names:
            return {}
        exact = self._promoted(module, call, seed)
        with torch.no_grad(), seeded(seed):
            rough = self._baseline.run(*self._capture.bind(module, clone_call(call)))
        errors = {name: _largest_error(r, e) for name, e, r in zip(self._all, exact, rough, strict=True)}
        firm: list[Any] = [None] * len(self.names)
        if self._nudged is not None:
            gates = {name: errors[name] for name in self._nudged.gates}
            moved = self._nudged.runs(module, call, seed, gates)
            count = len(self.names)
            for i, (e, r, up, down) in enumerate(zip(exact[:count], rough[:count], *moved, strict=True)):
                firm[i] = same(r.double(), e) & same(up, e) & same(down, e)
        return {name: Inner(e, errors[name], f) for name, e, f in zip(self.names, exact, firm, strict=False)}


def _largest_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    return float((value.double() - exact).abs().nan_to_num(0.0, 0.0, 0.0).max()) if exact.numel() else 0.0


def judge_discrete(source: Source, candidate: torch.Tensor, baseline: torch.Tensor, inner: Mapping[str, Inner]) -> str:
    """In words what is wrong with an integer or boolean output; "" for right. Bounds are 4x the baseline's error."""
    if source.rule is Rule.EQUAL or source.given or any(name not in inner for name in source.nodes):
        return judge_equal(candidate, baseline)
    values = [inner[name].exact for name in source.nodes]
    bound = ERRORS * max(inner[name].error for name in source.nodes)
    firm = inner[source.nodes[0]].firm
    if source.rule is Rule.INDEX:
        return judge_indices(candidate, baseline, values[0], source.dim, bound, source.first_of_ties, firm)
    if source.rule is Rule.COMPARED:
        other = values[1] if len(values) > 1 else source.constant
        second = inner[source.nodes[-1]].firm
        firm = None if firm is None or second is None else firm & second
        return judge_booleans(candidate, baseline, values[0] - other, bound, firm)
    return judge_rounded(candidate, baseline, values[0], bound)
