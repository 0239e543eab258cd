"""Handlers of what sorts rows: sort, argsort, top-k, k-th value, median.

A row is sorted once, as indices; every value is read again at its index, so that what was computed before it and bits
that compare equal (-0.0 and 0.0) stay what they are. As in torch NaN is above every number, and equal elements keep
their order.
"""

from __future__ import annotations

from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, handles
from kforge.engine.graph.ir import REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, Value, floor_div
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.composites import reduce
from kforge.engine.handlers.scans import scan


def _at(imp: Importer, x: Tensor, d: int, order: Tensor) -> Tensor:
    """x at the indices `order` along dimension d."""

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        place = Poly.of(Value(ctx.value(order, index, guard), x.shape[d]))
        return ctx.value(x, (*index[:d], place, *index[d + 1 :]), guard)

    return imp.tensor(order.shape, x.dtype, at, x, order)


def _sorted(imp: Importer, x: Tensor, d: int, descending: bool) -> tuple[Tensor, Tensor]:
    order = scan(imp, "sort_down" if descending else "sort_up", x, d, "int64")
    return _at(imp, x, d, order), order


@handles("sort")
def _sort(
    imp: Importer, meta: Meta, x: Tensor, dim: int = -1, descending: bool = False, stable: Any = None
) -> tuple[Tensor, Tensor]:
    if not x.shape:
        raise imp.reject("a tensor without dimensions")
    values, order = _sorted(imp, x, dim % len(x.shape), descending)
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
    values, order = _sorted(imp, x, d, largest)
    shape = (*x.shape[:d], Poly.of(k), *x.shape[d + 1 :])
    return imp.view(values, shape, lambda i: i), imp.view(order, shape, lambda i: i)


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


def _count(x: Tensor) -> int:
    total = 1
    for s in x.shape:
        total *= s.hint()
    return total
