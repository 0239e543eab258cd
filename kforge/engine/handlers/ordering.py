"""Handlers of what sorts rows: sort, argsort, top-k, k-th value, median, mode.

A row is sorted once, as indices; every value is read again at its index, so that what was computed before it and bits
that compare equal (-0.0 and 0.0) stay what they are. As in torch NaN is above every number, and equal elements keep
their order.
"""

from __future__ import annotations

from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, handles
from kforge.engine.graph.ir import FLOATS, REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, Value, floor_div
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor
from kforge.engine.handlers.composites import reduce
from kforge.engine.handlers.scans import scan


def _at(imp: Importer, x: Tensor, d: int, order: Tensor) -> Tensor:
    """x at the indices `order` along dimension d. A kernel of other rows finds these values in memory, not their
    indices."""

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        try:
            chosen = ctx.value(order, index, guard)
        except Cut as cut:
            raise Cut(values if cut.tensor is order else cut.tensor) from None
        return ctx.value(x, (*index[:d], Poly.of(Value(chosen, x.shape[d])), *index[d + 1 :]), guard)

    values = imp.tensor(order.shape, x.dtype, at, x, order)
    values.name = "sorted"
    return values


def _first(imp: Importer, order: Tensor, d: int, count: int) -> Tensor:
    """The first few indices of each sorted row; nothing else of the order is ever in memory."""

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        try:
            return ctx.value(order, index, guard)
        except Cut as cut:
            raise Cut(few if cut.tensor is order else cut.tensor) from None

    few = imp.tensor((*order.shape[:d], Poly.of(count), *order.shape[d + 1 :]), order.dtype, at, order)
    few.name = "chosen"
    return few


@handles("sort")
def _sort(
    imp: Importer, meta: Meta, x: Tensor, dim: int = -1, descending: bool = False, stable: Any = None
) -> tuple[Tensor, Tensor]:
    if not x.shape:
        raise imp.reject("a tensor without dimensions")
    d = dim % len(x.shape)
    order = scan(imp, "sort_down" if descending else "sort_up", x, d, "int64")
    values = _at(imp, x, d, order)
    values.layout = order.layout = x.layout
    return values, order


@handles("topk")
def _topk(
    imp: Importer, meta: Meta, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    if not x.shape or k < 1:
        raise imp.reject("no dimension or no element to choose from")
    d = imp.axis(x.shape, dim)
    imp.at_least(x.shape[d], k)
    if k == 1 and largest:
        return reduce(imp, "max", x, d, True, x.dtype), reduce(imp, "argmax", x, d, True, "int64")
    if k == 1:
        return _chosen(imp, x, d, Poly(), True, nan_first=False)
    chosen = _first(imp, scan(imp, "sort_down" if largest else "sort_up", x, d, "int64"), d, k)
    return _at(imp, x, d, chosen), chosen


def _picked(imp: Importer, order: Tensor, d: int, place: Poly | Tensor, keepdim: bool) -> Tensor:
    """The index that stands at one place of each sorted row; a tensor has a place for each of them."""

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        if isinstance(place, Tensor):
            wanted = ctx.value(place, (*index[:d], Poly(), *index[d + 1 :]), guard)
        else:
            wanted = b.index(place)
        here = b.op("eq", b.index(index[d]), wanted, dtype="bool")
        return b.op("where", here, ctx.value(order, index, guard), b.const(-1, "int64"), dtype="int64")

    inputs = (order, place) if isinstance(place, Tensor) else (order,)
    return reduce(imp, "max", imp.tensor(order.shape, "int64", at, *inputs), d, keepdim, "int64")


def _chosen(
    imp: Importer, x: Tensor, d: int, place: Poly | Tensor, keepdim: bool, nan_first: bool
) -> tuple[Tensor, Tensor]:
    """The element at one place of each row sorted upwards; with nan_first a row's first NaN instead."""
    order = scan(imp, "sort_up", x, d, "int64")
    picked = _picked(imp, order, d, place, True)
    if nan_first and x.dtype.startswith(("float", "bfloat")):
        top = reduce(imp, "max", x, d, True, x.dtype)
        where = reduce(imp, "argmax", x, d, True, "int64")

        def choose(ctx: Context, index: Index, guard: Guard) -> Expr:
            b = ctx.builder
            nan = b.op("isnan", ctx.value(top, index, guard), dtype="bool")
            return b.op("where", nan, ctx.value(where, index, guard), ctx.value(picked, index, guard), dtype="int64")

        chosen = imp.tensor(picked.shape, "int64", choose, top, where, picked)
    else:
        chosen = picked
    values = _at(imp, x, d, chosen)
    if keepdim:
        return values, chosen
    squeeze = HANDLERS["squeeze"]
    return squeeze(imp, Meta("", (), imp.operator), values, d), squeeze(imp, Meta("", (), imp.operator), chosen, d)


@handles("kthvalue")
def _kthvalue(
    imp: Importer, meta: Meta, x: Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    d = imp.axis(x.shape, dim)
    imp.at_least(x.shape[d], k)
    return _chosen(imp, x, d, Poly.of(k - 1), keepdim, nan_first=False)


@handles("median")
def _median(imp: Importer, meta: Meta, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of two middle elements; NaN where the row has one."""
    if not x.shape:
        raise imp.reject("a tensor without dimensions")
    if dim is None:
        flat = HANDLERS["view"](imp, Meta(x.dtype, (_count(x),), imp.operator), x, [-1])
        return _chosen(imp, flat, 0, floor_div(flat.shape[0] - 1, Poly.of(2)), False, nan_first=True)[0]
    d = imp.axis(x.shape, dim)
    return _chosen(imp, x, d, floor_div(x.shape[d] - 1, Poly.of(2)), keepdim, nan_first=True)


@handles("nanmedian")
def _nanmedian(imp: Importer, meta: Meta, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of two middle elements of those that are numbers; they come first when a row is sorted."""
    if not x.shape or not x.dtype.startswith(("float", "bfloat")):
        return _median(imp, meta, x, dim, keepdim)
    if dim is None:
        x = HANDLERS["view"](imp, Meta(x.dtype, (_count(x),), imp.operator), x, [-1])
    d = imp.axis(x.shape, dim or 0)

    def number(b: Builder, v: Expr) -> Expr:
        return b.cast(b.op("not", b.op("isnan", v, dtype="bool"), dtype="bool"), "int64")

    def middle(b: Builder, n: Expr) -> Expr:
        zero, one = b.const(0, "int64"), b.const(1, "int64")
        last = b.op("where", b.op("gt", n, zero, dtype="bool"), b.op("sub", n, one, dtype="int64"), zero, dtype="int64")
        return b.op("shr", last, one, dtype="int64")

    numbers = reduce(imp, "sum", imp.map(number, x, dtype="int64", compute=REAL), d, True, "int64")
    chosen = _chosen(imp, x, d, imp.map(middle, numbers, dtype="int64"), keepdim, nan_first=False)
    return chosen[0] if dim is None else chosen


@handles("mode")
def _mode(imp: Importer, meta: Meta, x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The least of the most frequent elements, and the last place at which it stands.

    In a sorted row equal elements are runs: the longest ends where the place less that of its run's beginning is
    largest, and the first such place is that of the least element. Among floats torch's own sort puts a NaN anywhere.
    """
    if x.dtype in FLOATS:
        raise imp.reject("the most frequent of floats, which torch does not promise where one is NaN")
    d = imp.axis(x.shape, dim)
    order = scan(imp, "sort_up", x, d, "int64")
    ordered = _at(imp, x, d, order)

    def begins(ctx: Context, index: Index, guard: Guard) -> Expr:
        """The own place where the element differs from the one before it, else 0."""
        b, here = ctx.builder, ctx.builder.index(index[d])
        later = b.op("gt", here, b.const(0, "int64"), dtype="bool")
        inside = later if guard is None else b.op("and", guard, later, dtype="bool")
        before = ctx.value(ordered, (*index[:d], index[d] - 1, *index[d + 1 :]), inside)
        new = b.op("ne", ctx.value(ordered, index, guard), before, dtype="bool")
        return b.op("where", b.op("and", later, new, dtype="bool"), here, b.const(0, "int64"), dtype="int64")

    start = scan(imp, "max", imp.tensor(x.shape, "int64", begins, ordered), d, "int64")

    def length(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        return b.op("sub", b.index(index[d]), ctx.value(start, index, guard), dtype="int64")

    last = reduce(imp, "argmax", imp.tensor(x.shape, "int64", length, start), d, True, "int64")
    values, places = _at(imp, ordered, d, last), _at(imp, order, d, last)
    if keepdim:
        return values, places
    squeeze = HANDLERS["squeeze"]
    return squeeze(imp, Meta("", (), imp.operator), values, d), squeeze(imp, Meta("", (), imp.operator), places, d)


def _count(x: Tensor) -> int:
    total = 1
    for s in x.shape:
        total *= s.hint()
    return total
