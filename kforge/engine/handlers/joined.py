"""Products that share their left operand as one: linear layers on the same rows, such as queries, keys and values.

Their weights, one below the other, are written by a kernel in each call; each product is a range of columns of the one
result. A precision scheme then converts the rows once, and tiles are full where single layers are narrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kforge.engine.graph.importer import Importer
from kforge.engine.graph.ir import REAL, Expr
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor

VIEWS = ("view", "_unsafe_view", "reshape")


def _name(node: Any) -> str:
    return str(node.target).removeprefix("aten.").split(".")[0]


def _rows_of(node: Any) -> tuple[Any, tuple[int, ...]]:
    """What a left operand is a reshape of, and its shape: linear layers reshape the same rows each for itself."""
    shape = tuple(map(int, node.meta["val"].shape))
    while node.op == "call_function" and _name(node) in VIEWS:
        node = node.args[0]
    return node, shape


def _weight_of(node: Any) -> Any | None:
    """The matrix among the inputs whose transpose a right operand is."""
    if node.op != "call_function" or _name(node) not in ("permute", "t", "transpose"):
        return None
    source, *order = node.args
    if source.op != "placeholder" or source.meta["val"].dim() != 2:
        return None
    axes = order[0] if _name(node) == "permute" else order or (1, 0)
    return source if [d % 2 for d in axes] in ([1, 0], [0, 1] if _name(node) == "transpose" else [1, 0]) else None


def groups(nodes: Iterable[Any]) -> list[list[Any]]:
    """Products of the same rows with weights of their own, in the graph's order; in 16 bits those with a bias apart."""
    found: dict[Any, list[Any]] = {}
    for node in nodes:
        if node.op != "call_function" or _name(node) not in ("mm", "addmm"):
            continue
        biased = _name(node) == "addmm"
        given = node.args[0]
        if biased and (given.op != "placeholder" or given.meta["val"].dim() != 1 or node.kwargs):
            continue
        left, right = node.args[-2:]
        weight = _weight_of(right)
        if weight is not None:
            dtype = node.meta["val"].dtype
            found.setdefault((*_rows_of(left), dtype, biased and dtype.itemsize == 2), []).append(node)
    return [g for g in found.values() if len({_weight_of(n.args[-1]) for n in g}) == len(g) > 1]


def group_of(imp: Importer) -> list[Any] | None:
    """The products that the present one is computed with; None where it is alone."""
    if not imp.switches.joined:
        return None
    return next((g for g in groups(imp.node.graph.nodes) if imp.node in g), None)


def weights_of(imp: Importer, group: list[Any]) -> Tensor:
    """The weights of a group, one below the other."""
    parts = [imp.values[_weight_of(node.args[-1])] for node in group]
    for part in parts:
        imp.fix(part.shape[0])
        imp.equal(part.shape[1], parts[0].shape[1])
    return below(imp, parts, "weights")


def below(imp: Importer, parts: list[Tensor], name: str) -> Tensor:
    """Tensors of constant first sizes, one after the other along that dimension."""
    ends, total = [], 0
    for part in parts:
        total += part.shape[0].hint()
        ends.append(total)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b, first = ctx.builder, index[0]
        chosen: Expr | None = None
        for part, begin, end in reversed(list(zip(parts, [0, *ends], ends, strict=False))):
            after = b.op("ge", b.index(first), b.index(Poly.of(begin)), dtype="bool")
            before = b.op("lt", b.index(first), b.index(Poly.of(end)), dtype="bool")
            here = b.op("and", after, before, dtype="bool")
            both = here if guard is None else b.op("and", guard, here, dtype="bool")
            value = ctx.value(part, (first - begin, *index[1:]), both)
            chosen = value if chosen is None else b.op("where", before, value, chosen, dtype=REAL)
        assert chosen is not None
        return chosen

    result = imp.tensor((Poly.of(total), *parts[0].shape[1:]), parts[0].dtype, at, *parts)
    result.name = name
    return result


def part_of(imp: Importer, group: list[Any], whole: Tensor) -> Tensor:
    """The present product's columns of the result."""
    first = 0
    for node in group:
        width = imp.values[_weight_of(node.args[-1])].shape[0]
        if node is imp.node:
            break
        first += width.hint()
    return imp.view(whole, (whole.shape[0], width), lambda i: (i[0], i[1] + first))
