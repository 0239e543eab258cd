"""A captured graph as data: where its inputs come from, what it mutates, which line of op.py each node belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kforge.errors import NoCandidate
from kforge.task.call import Call, call_leaves
from kforge.task.precision import Precision
from kforge.task.state import named_state

if TYPE_CHECKING:
    import torch
    from torch.utils._pytree import TreeSpec


class InputKind(StrEnum):
    """Where a placeholder's value comes from."""

    PARAM = "param"
    BUFFER = "buffer"
    CONSTANT = "constant"  # a tensor the module holds as a plain attribute, or a literal in forward
    INPUT = "input"


@dataclass(frozen=True)
class InputRef:
    """One placeholder: kind, path (state name, or input path as in call_leaves) and the placeholder's node name."""

    kind: InputKind
    path: str
    node: str


@dataclass(frozen=True)
class Mutation:
    """One of the graph's first outputs: the new value of a buffer, a parameter or an input."""

    kind: InputKind
    path: str


@dataclass(frozen=True)
class Origin:
    """The line of op.py that a node comes from: number and stripped text."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}"


@dataclass(frozen=True)
class Capture:
    """A reference's graph, or why there is none.

    graph_module: core ATen, functional; placeholders as in `inputs` (one each), outputs are the new values listed in
    `mutations`, then the leaves of `out_spec`. Each node has meta["val"] (fake tensors on `device`) and, where known,
    meta["origin"] (Origin). constants: values of CONSTANT inputs. literals: what non-tensor inputs were; the graph
    holds for these values and for the captured shapes only. method: "export" or "make_fx".
    """

    graph_module: torch.fx.GraphModule | None
    inputs: tuple[InputRef, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    constants: dict[str, torch.Tensor] = field(default_factory=dict, repr=False, hash=False)
    literals: dict[str, Any] = field(default_factory=dict, hash=False)
    out_spec: TreeSpec | None = field(default=None, hash=False)
    method: str = ""
    device: str = "cpu"
    precision: Precision = Precision.HIGHEST
    failure: str = ""

    @property
    def module(self) -> torch.fx.GraphModule:
        """The graph; raises NoCandidate with the reason where capture failed."""
        if self.graph_module is None:
            raise NoCandidate(f"the reference cannot be captured as a graph: {self.failure}", operator="capture")
        return self.graph_module

    @property
    def graph(self) -> torch.fx.Graph:
        return self.module.graph

    def placeholders(self) -> dict[str, InputRef]:
        """Node name -> where its value comes from."""
        return {ref.node: ref for ref in self.inputs}

    def bind(self, module: torch.nn.Module, call: Call) -> list[Any]:
        """Values for the placeholders, in order; a tensor with other strides than the captured one comes as a copy.

        Raises ValueError where a non-tensor input is not the captured one.
        """
        state = named_state(module)
        leaves = dict(call_leaves(call, module.forward))
        seen = {node.name: node.meta.get("val") for node in self.graph.find_nodes(op="placeholder")}
        values = []
        for ref in self.inputs:
            if ref.kind is InputKind.CONSTANT:
                values.append(self.constants[ref.path])
            elif ref.kind is InputKind.INPUT:
                value = leaves[ref.path]
                if ref.path in self.literals and self.literals[ref.path] != value:
                    raise ValueError(f"{ref.path} was {self.literals[ref.path]!r} when captured, now it is {value!r}")
                values.append(_as_captured(value, seen.get(ref.node)))
            else:
                values.append(state[ref.path])
        return values


def _as_captured(value: Any, seen: Any) -> Any:
    """The same values with the strides that the graph was captured on: operators in it may hold for those only.

    A group norm in the graph refuses the transposed input that eager mode copies before it.
    """
    import torch

    if not isinstance(value, torch.Tensor) or not isinstance(seen, torch.Tensor):
        return value
    if value.layout != torch.strided or seen.shape != value.shape or seen.stride() == value.stride():
        return value
    strides = [int(step) for step in seen.stride()]
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
