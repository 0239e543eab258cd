"""Which exact ties no rounding could have undone: there a boolean or an index must be the reference's own.

A value is firm where fp32 and fp64 give the same, and still do when every rounded value is moved by a few units in the
last place at each of its uses, and what meets a threshold (relu, clamp, a comparison) by its own error besides, up in
one run and down in the other. relu(x * s) is firm at the zeros that it makes of clearly negative values; x - mean(x) of
a constant row is not, though it is 0 in both.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from kforge.task import Call, Capture

ERRORS = 4  # times the baseline's largest error, as everywhere in the acceptance rule
_UNITS = 8.0  # in the last place of float32, by which a rounded value is moved at most
COMPARISONS = {"lt", "gt", "le", "ge", "eq", "ne"}
SELECTING = {  # operators whose results are exact: their operands' values, or none that rounds
    "abs", "neg", "relu", "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "amax", "amin", "max", "min",
    "where", "round", "floor", "ceil", "trunc", "sign", "getitem", "view", "permute", "transpose", "expand", "slice",
    "select", "squeeze", "unsqueeze", "flip", "cat", "clone", "alias", "detach",
}  # fmt: skip
_EXACT = SELECTING | {"_to_copy", "full", "full_like", "zeros_like", "ones_like", "scalar_tensor", "arange"}
_GATES = COMPARISONS | {"relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "minimum", "maximum", "sign"}
_GATES |= {"round", "floor", "ceil", "trunc"}


class Inner(NamedTuple):
    """A value inside the reference: fp64, the baseline's largest error, where it is firm (None: not known)."""

    exact: torch.Tensor
    error: float
    firm: torch.Tensor | None = None


def operator(node: Any) -> str:
    """The short name of a graph node's operator."""
    return getattr(node.target, "_opname", getattr(node.target, "__name__", ""))


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Equal, or both NaN."""
    return (a == b) | (a.isnan() & b.isnan())


class Nudged:
    """A capture's graph whose rounded values are moved. gates: names of the nodes that meet thresholds."""

    def __init__(self, capture: Capture, names: tuple[str, ...]) -> None:
        from torch.utils import _pytree as pytree

        from kforge.task.promotion import Promoted

        module = copy.deepcopy(capture.module)
        nodes = {node.name: node for node in module.graph.nodes}
        output = next(node for node in module.graph.nodes if node.op == "output")
        output.args = (tuple(nodes[name] for name in names),)
        self._errors: dict[str, float] = {}
        self._sign, self._seed = 1.0, 0
        for node in list(module.graph.nodes):
            if node.op == "call_function" and operator(node) in _GATES and _is_computed(node.args[0]):
                met = node.args[0]
                with module.graph.inserting_before(node):
                    moved = module.graph.call_function(self._shift, (met, met.name))
                node.args = (moved, *node.args[1:])
                self._errors[met.name] = 0.0
        for node in list(nodes.values()):
            if _is_computed(node) and operator(node) not in _EXACT:
                for user in list(node.users):
                    with module.graph.inserting_before(user):
                        user.replace_input_with(node, module.graph.call_function(self._nudge, (node,)))
        module.recompile()
        spec = pytree.tree_structure([0] * len(names))
        self._promoted = Promoted(replace(capture, graph_module=module, mutations=(), out_spec=spec), "graph")

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(self._errors)

    def runs(self, module: torch.nn.Module, call: Call, seed: int, errors: dict[str, float]) -> list[tuple[Any, ...]]:
        """The named values in two runs. errors: the baseline's largest error at each gate."""
        self._errors = errors
        found = []
        for self._sign in (1.0, -1.0):
            self._seed = 0
            found.append(tuple(self._promoted(module, call, seed)))
        return found

    def _shift(self, value: torch.Tensor, name: str) -> torch.Tensor:
        """What a threshold meets, by its error. An exact zero stays: nothing has rounded it."""
        return value + (value != 0) * self._sign * ERRORS * self._errors[name]

    def _nudge(self, value: torch.Tensor) -> torch.Tensor:
        """Each element by a few units in the last place, of its own."""
        import torch

        self._seed += 1
        generator = torch.Generator(value.device).manual_seed(self._seed)
        size = torch.rand(value.shape, generator=generator, device=value.device, dtype=torch.float64) + 0.5
        return value * (1 + self._sign * size * _UNITS * 2.0**-24)


def _is_computed(node: Any) -> bool:
    """Whether a node is an operator's floating result."""
    if getattr(node, "op", "") != "call_function":
        return False
    value = node.meta.get("val")
    return hasattr(value, "dtype") and bool(value.dtype.is_floating_point)
