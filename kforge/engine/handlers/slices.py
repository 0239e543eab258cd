"""Handlers of parts of a tensor and of tensors put side by side: slices, splits, concatenation, stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kforge.engine.graph.importer import Importer, Meta, cast, computing, handles
from kforge.engine.graph.ir import Expr
from kforge.engine.graph.symbols import Poly, largest, never_negative
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.views import same, unsqueeze

END = 1 << 62


@handles("slice")
def _slice(
    imp: Importer, meta: Meta, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    d = dim % len(x.shape)
    size = x.shape[d]
    first, last = start or 0, END if end is None else end
    if first == 0 and step == 1 and last > END // 2:
        return same(imp, meta, x)
    if step == 1 and size.constant is None:
        edges = _fractions(imp, size, d, meta.shape[d])
        if edges is not None:
            shift, width = edges
            shape = (*x.shape[:d], width, *x.shape[d + 1 :])
            return imp.view(x, shape, lambda i: (*i[:d], i[d] + shift, *i[d + 1 :]))
    ends = last > END // 2
    if step == 1 and size.constant is None and (first >= 0 or last < 0 or ends) and _written_so(imp, size):
        begin = size + first if first < 0 else Poly.of(first)
        stop = size if ends else size + last if last < 0 else Poly.of(last)
        imp.at_least(size, max(-first, first - min(last, 0), 0 if ends else last))
        shape = (*x.shape[:d], stop - begin, *x.shape[d + 1 :])
        return imp.view(x, shape, lambda i: (*i[:d], i[d] + begin, *i[d + 1 :]))
    if (first < 0 or last < END // 2) and size.constant is None:
        imp.fix(size)  # a literal end or a start from the end: right for this size only
    if size.constant is None:
        if step != 1:
            imp.fix(size)
        imp.at_least(size, first)
        width = size - first
    else:
        width = Poly.of(meta.shape[d])
        first = max(0, first + size.constant) if first < 0 else first
    shape = (*x.shape[:d], width, *x.shape[d + 1 :])
    return imp.view(x, shape, lambda i: (*i[:d], i[d] * step + first, *i[d + 1 :]))


def _written_so(imp: Importer, size: Poly) -> bool:
    """Whether a slice's literals are the user's own, not worked out from the size: 1, -1, or the same for another."""
    here = tuple(imp.node.args[2:4])
    others = imp.evidence.nodes(imp.node)
    d = imp.node.args[1] if len(imp.node.args) > 1 else 0
    varied = any(int(o.args[0].meta["val"].shape[d]) != size.hint() for o in others)
    same = all(tuple(o.args[2:4]) == here for o in others)
    return same and (varied or all(a in (None, 0, 1, -1) or a > END // 2 for a in here))


def _slice_bounds(node: Any, d: int) -> tuple[int, int]:
    """Start and end of a slice node, within the size."""
    size = int(node.args[0].meta["val"].shape[d])
    arguments = [*node.args[2:], *[None] * 3]
    start, end, _ = slice(arguments[0], arguments[1]).indices(size)
    return start, end


def _fractions(imp: Importer, size: Poly, d: int, width: int) -> tuple[Poly, Poly] | None:
    """Start and width of a slice as parts of the size, where the other variants prove them to be."""
    start, end = _slice_bounds(imp.node, d)
    n = imp.evidence.parts(imp.node, lambda o: _slice_bounds(o, d), lambda o: int(o.args[0].meta["val"].shape[d]))
    if n is None or end - start != width:
        return None
    part = imp.divide(size, n)
    unit = size.hint() // n
    return part * (start // unit), part * (width // unit)


def _pieces(imp: Importer, size: Poly, widths: list[int], read: Callable[[Any], tuple[int, ...]], d: int) -> list[Poly]:
    """Widths of a split: parts of the size where the other variants prove it, else fixed."""
    if size.constant is None:
        n = imp.evidence.parts(imp.node, read, lambda o: int(o.args[0].meta["val"].shape[d]))
        if n is not None:
            part = imp.divide(size, n)
            return [part * (w // (size.hint() // n)) for w in widths]
        imp.fix(size)
    return [Poly.of(w) for w in widths]


@handles("select")
def _select_one(imp: Importer, meta: Meta, x: Tensor, dim: int, index: int) -> Tensor:
    d = dim % len(x.shape)
    imp.at_least(x.shape[d], index + 1 if index >= 0 else -index)
    imp.guessed |= index > 0 and index + 1 == x.shape[d].hint()  # the last one: of a loop over all of them
    at = Poly.of(index) if index >= 0 else x.shape[d] + index
    return imp.view(x, x.shape[:d] + x.shape[d + 1 :], lambda i: (*i[:d], at, *i[d:]))


@handles("split_with_sizes")
def _split(imp: Importer, meta: Meta, x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    d = dim % len(x.shape)
    pieces = _pieces(imp, x.shape[d], list(sizes), lambda n: tuple(n.args[1]), d)
    parts, start = [], Poly()
    for width in pieces:
        shape = (*x.shape[:d], width, *x.shape[d + 1 :])
        parts.append(imp.view(x, shape, lambda i, s=start: (*i[:d], i[d] + s, *i[d + 1 :])))  # type: ignore[misc]
        start += width
    return parts


def _below(ctx: Context, index: Poly, limit: Poly) -> Expr:
    top = largest(index)
    if top is not None and never_negative(limit - 1 - top):
        return ctx.builder.const(True, "bool")
    if index.constant is not None and limit.constant is not None:
        return ctx.builder.const(index.constant < limit.constant, "bool")
    return ctx.builder.op("lt", ctx.builder.index(index), ctx.builder.index(limit), dtype="bool")


def both(ctx: Context, guard: Guard, condition: Expr) -> Guard:
    if condition.op == "const":
        return guard
    return condition if guard is None else ctx.builder.op("and", guard, condition, dtype="bool")


@handles("cat")
def _cat(imp: Importer, meta: Meta, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Pieces chosen by position; loads of a piece happen only inside it."""
    parts = [t for t in tensors if t.shape != () and not (len(t.shape) == 1 and t.shape[0].constant == 0)]
    d = dim % len(parts[0].shape)
    for other in parts[1:]:
        for axis in range(len(parts[0].shape)):
            if axis != d:
                imp.equal(parts[0].shape[axis], other.shape[axis])
    for t in parts:
        if t.shape[d].hint() == 1:
            imp.fix(t.shape[d])
    width = parts[0].shape[d]
    for t in parts[1:]:
        width = width + t.shape[d]
    shape = (*parts[0].shape[:d], width, *parts[0].shape[d + 1 :])
    target = computing(meta.dtype)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        def piece(k: int, start: Poly, guard: Guard) -> Expr:
            own = (*index[:d], index[d] - start, *index[d + 1 :])
            end = start + parts[k].shape[d]
            if k == len(parts) - 1:
                return cast(ctx, ctx.value(parts[k], own, guard), target)
            inside = _below(ctx, index[d], end)
            if inside.op == "const":
                return cast(ctx, ctx.value(parts[k], own, guard), target) if inside.value else piece(k + 1, end, guard)
            outside = ctx.builder.op("not", inside, dtype="bool")
            here = cast(ctx, ctx.value(parts[k], own, both(ctx, guard, inside)), target)
            return ctx.builder.op("where", inside, here, piece(k + 1, end, both(ctx, guard, outside)), dtype=target)

        return piece(0, Poly(), guard)

    return imp.tensor(shape, meta.dtype, at, *parts)


@handles("stack")
def _stack(imp: Importer, meta: Meta, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return _cat(imp, meta, [unsqueeze(imp, meta, t, dim) for t in tensors], dim)
