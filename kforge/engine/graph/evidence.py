"""What the graphs of a task's other input variants prove about literals: a fixed number, or a fraction of a size."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from kforge.errors import NoCandidate

FEW = 16  # elements of a constant tensor that kernels choose among


class Evidence:
    """What the graphs of other input variants say: is a literal a fixed number or a fraction of a size?"""

    def __init__(
        self,
        module: Any,
        variants: Callable[[], list[Any]],
        names: dict[str, tuple[str, str]],
        probed: bool = False,
    ) -> None:
        self.probed = probed  # graphs for other sizes are compared with what was imported (probing.py)
        self._module, self._variants = module, variants
        self._readable = {readable: placeholder for placeholder, (readable, _) in names.items()}
        self._aligned: list[dict[Any, Any]] | None = None

    @cached_property
    def shares(self) -> set[float]:
        """The numbers between 0 and 1 in the graph."""
        calls = (node for node in self._module.graph.nodes if node.op == "call_function")
        return {v for node in calls for v in numbers_of(node) if 0 < v < 1}

    def nodes(self, node: Any) -> list[Any]:
        """The same node in every variant whose graph has the same operators in the same order."""
        if self._aligned is None:
            own = list(self._module.graph.nodes)
            self._aligned = []
            for other in self._variants():
                theirs = list(other.graph.nodes)
                if [n.target for n in own if n.op == "call_function"] == [
                    n.target for n in theirs if n.op == "call_function"
                ] and len(own) == len(theirs):
                    self._aligned.append(dict(zip(own, theirs, strict=True)))
        return [table[node] for table in self._aligned]

    def size(self, node: Any, name: str) -> int:
        """The size `name` (input_axis) in the graph of a node."""
        readable, axis = name.rsplit("_", 1)
        wanted = self._readable.get(readable, readable)  # a library's result goes by its node's own name
        return int(next(n for n in node.graph.nodes if n.name == wanted).meta["val"].shape[int(axis)])

    def parts(self, node: Any, bounds: Callable[[Any], tuple[int, ...]], size: Callable[[Any], int]) -> int | None:
        """n if in every variant `bounds` are the same multiples of size / n, and some variant has another size.

        bounds, size: read a node's literals and the size they cut. None: no evidence, the literals may be fixed.
        """
        here, whole = bounds(node), size(node)
        n = whole // math.gcd(whole, *here)
        others = self.nodes(node)
        if n > 64 or not any(size(o) != whole for o in others):
            return None
        if all(tuple(b * n for b in bounds(o)) == tuple(b // (whole // n) * size(o) for b in here) for o in others):
            return n
        return None


def numbers_of(node: Any) -> list[float]:
    """The numbers among a node's arguments."""
    given = [*node.args, *node.kwargs.values()]
    return [float(a) for a in given if isinstance(a, (int, float)) and not isinstance(a, bool)]


def known_constants(capture: Any) -> dict[str, list[float | int | bool]]:
    """The elements of constant tensors, by placeholder; only a few have a place in a kernel."""
    found: dict[str, list[float | int | bool]] = {}
    for node, ref in capture.placeholders().items():
        if ref.kind.value == "constant":
            value = capture.constants[ref.path]
            written = "lifted_tensor" in ref.path or "tensor_constant" in ref.path  # no attribute: it may be random
            if not 0 < value.numel() <= (FEW if written else 1):
                raise NoCandidate(f"the constant tensor {ref.path} is not a buffer", operator="constant tensor")
            found[node] = value.flatten().tolist()
    return found
