"""Handlers of scatters that join what meets at one place: scatter_reduce, index_reduce, put; bags of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, cast, computing, constant, handles, literal
from kforge.engine.graph.ir import FLOATS, INTEGERS, REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, Value
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.composites import op, reduce, size_as_real
from kforge.engine.handlers.indexing import Places, position, row_places, scatter_places, scattered
from kforge.engine.handlers.windows import Stretch, stretched

JOINS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
LIMITS = {"int64": (-(2**63), 2**63 - 1), "int32": (-(2**31), 2**31 - 1)}


def _joined(
    imp: Importer, meta: Meta, x: Tensor, places: Places, shape: Sequence[Poly], source: Tensor, kind: str, own: bool
) -> Tensor:
    """x joined with source[i] at places(i); own: x counts as well, else only where nothing is joined to it.

    The number that meets at a place is counted in single precision, which is exact below 2^24.
    """
    if kind not in JOINS or (kind == "mean" and x.dtype in INTEGERS):
        raise imp.reject(f"reduce={kind!r} of {x.dtype}")
    count = None
    if kind == "mean" or not own:
        ones = constant(imp, 1.0 if own else 0.0, "float32", 0)
        start = imp.view(ones, x.shape, lambda i: ())
        count = scattered(imp, meta, start, places, shape, 1.0, True)
    base = x
    if not own:
        assert count is not None
        neutral = _neutral(kind, x.dtype)

        def begin(ctx: Context, index: Index, guard: Guard) -> Expr:
            b = ctx.builder
            met = b.op("gt", ctx.value(count, index, guard), b.const(0.0, REAL), dtype="bool")
            value = cast(ctx, ctx.value(x, index, guard), computing(x.dtype))
            return b.op("where", met, literal(ctx, neutral, value.dtype), value, dtype=value.dtype)

        base = imp.tensor(x.shape, x.dtype, begin, x, count)
    result = scattered(imp, meta, base, places, shape, source, True, JOINS[kind])
    if kind != "mean":
        return result
    assert count is not None

    def divided(b: Builder, total: Expr, n: Expr) -> Expr:
        one = b.const(1.0, REAL)
        return b.op("div", total, b.op("where", b.op("lt", n, one, dtype="bool"), one, n, dtype=REAL), dtype=REAL)

    return imp.map(divided, result, count, dtype=x.dtype, compute=REAL)


def _neutral(kind: str, dtype: str) -> float | int:
    if kind in ("sum", "mean", "prod"):
        return 1 if kind == "prod" else 0
    if dtype in FLOATS:
        return float("-inf") if kind == "amax" else float("inf")
    return LIMITS.get(dtype, (0, 0))[kind == "amin"]


@handles("scatter_reduce")
def _scatter_reduce(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    dim: int,
    indices: Tensor,
    source: Tensor,
    kind: str,
    *,
    include_self: bool = True,
) -> Tensor:
    places = scatter_places(imp, x, dim, indices, source)
    return _joined(imp, meta, x, places, indices.shape, source, kind, include_self)


@handles("index_reduce")
def _index_reduce(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    dim: int,
    indices: Tensor,
    source: Tensor,
    kind: str,
    *,
    include_self: bool = True,
) -> Tensor:
    places, shape = row_places(imp, x, dim, indices, source)
    return _joined(imp, meta, x, places, shape, source, kind, include_self)


@handles("put")
def _put(imp: Importer, meta: Meta, x: Tensor, indices: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Places count through the whole tensor."""
    size = Poly.of(1)
    for s in x.shape:
        imp.fix(s)
        size = size * s
    for s, t in zip(indices.shape, source.shape, strict=True):
        imp.equal(s, t)
    flat = HANDLERS["view"](imp, Meta(x.dtype, (size.hint(),), imp.operator), x, [-1])

    def places(ctx: Context, index: Index, guard: Guard) -> Index:
        return (position(ctx, indices, index, size, guard, wrap=True),)

    result = scattered(imp, meta, flat, places, indices.shape, source, accumulate)
    hints = [s.hint() for s in x.shape]
    return HANDLERS["view"](imp, Meta(x.dtype, tuple(hints), imp.operator), result, hints)


@handles("_embedding_bag_forward_only", "_embedding_bag")
def _embedding_bag(
    imp: Importer,
    meta: Meta,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Tensor | None = None,
    last_offset: bool = False,
    padding: int = -1,
) -> tuple[Any, ...]:
    """Bags of one size where the indices are a matrix: torch numbers where each begins. Others: by their offsets."""
    node = imp.node.args[2]
    regular = "arange.start_step" in str(node.target) and node.args[0] == 0
    if padding >= 0 and mode != 0:
        raise imp.reject("a mean or maximum of bags with padding")
    if not regular or last_offset or padding >= 0:
        own = _bags_by_offset(imp, weight, indices, offsets, mode, weights, last_offset, padding)
        return own, None, None, None
    length = int(node.args[2])
    imp.fix(indices.shape[0])
    bags = Poly.of(indices.shape[0].hint() // length)
    shape = (bags, Poly.of(length), weight.shape[1])

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        own = index[0] * length + index[1]
        row = position(ctx, indices, (own,), weight.shape[0], guard, wrap=False)
        value = cast(ctx, ctx.value(weight, (row, index[2]), guard), REAL)
        if weights is None:
            return value
        return ctx.builder.op("mul", value, cast(ctx, ctx.value(weights, (own,), guard), REAL), dtype=REAL)

    inputs = (weight, indices) if weights is None else (weight, indices, weights)
    found = imp.tensor(shape, weight.dtype, at, *inputs)
    if mode == 2:
        numbers = imp.map(_number, found, dtype=weight.dtype)
        total = reduce(imp, "max", numbers, 1, False, weight.dtype)
        first = imp.view(found, (bags, weight.shape[1]), lambda i: (i[0], Poly(), i[1]))
        return imp.map(_or_nan, total, first, dtype=weight.dtype), None, None, None
    total = reduce(imp, "sum", found, 1, False, weight.dtype)
    if mode == 1:
        total = op(imp, "div", total, size_as_real(Poly.of(length)), dtype=weight.dtype)
    return total, None, None, None


def _number(b: Builder, value: Expr) -> Expr:
    """In the maximum of a bag torch passes over NaN, by `>`, but where it comes first."""
    nan = b.op("isnan", value, dtype="bool")
    return b.op("where", nan, b.const(float("-inf"), REAL), value, dtype=REAL)


def _or_nan(b: Builder, largest: Expr, first: Expr) -> Expr:
    return b.op("where", b.op("isnan", first, dtype="bool"), first, largest, dtype=REAL)


def _bags_by_offset(
    imp: Importer,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    weights: Tensor | None,
    last_offset: bool,
    padding: int,
) -> Tensor:
    """Each bag is a window over the indices that begins and ends where the offsets say.

    Sums, means and maxima (modes 0, 1, 2). An empty bag is zero; padding: a row of the table that counts nowhere.
    """
    number, wide = indices.shape[0], weight.shape[1]
    count = imp.derived(offsets.shape[0], -1, 1) if last_offset else offsets.shape[0]

    def ends(ctx: Context, bag: Poly, guard: Guard) -> tuple[Expr, Expr]:
        b = ctx.builder
        first = cast(ctx, ctx.value(offsets, (bag,), guard), "int64")
        if last_offset:
            return first, cast(ctx, ctx.value(offsets, (bag + 1,), guard), "int64")
        more = b.op("lt", b.index(bag + 1), b.index(count), dtype="bool")
        following = more if guard is None else b.op("and", guard, more, dtype="bool")
        after = cast(ctx, ctx.value(offsets, (bag + 1,), following), "int64")
        last = b.op("where", more, after, b.index(number), dtype="int64")
        return first, last if guard is None else b.op("where", guard, last, first, dtype="int64")

    def row(ctx: Context, at: Index, column: Poly, guard: Guard) -> Expr:
        b = ctx.builder
        place = position(ctx, indices, at, weight.shape[0], guard, wrap=False)
        value = cast(ctx, ctx.value(weight, (place, column), guard), REAL)
        if weights is not None:
            value = b.op("mul", value, cast(ctx, ctx.value(weights, at, guard), REAL), dtype=REAL)
        if padding >= 0:
            same = b.op("eq", b.index(place), b.const(padding, "int64"), dtype="bool")
            value = b.op("where", same, b.const(0.0, REAL), value, dtype=REAL)
        return value

    def bag(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        first, last = ends(ctx, index[0], guard)
        stretch = Stretch(first, last, number, "max" if mode == 2 else "sum")

        def one(at: Poly) -> Expr:
            value = row(ctx, (at,), index[1], guard)
            return _number(b, value) if mode == 2 else value

        total = stretched(ctx, result, stretch, one)
        if mode == 0:
            return total
        size = b.op("sub", last, first, dtype="int64")
        if mode == 1:
            total = b.op("div", total, b.cast(size, REAL), dtype=REAL)
        empty = b.op("eq", size, b.const(0, "int64"), dtype="bool")
        if mode == 2:
            some = b.op("not", empty, dtype="bool")
            some = some if guard is None else b.op("and", guard, some, dtype="bool")
            total = _or_nan(b, total, row(ctx, (Poly.of(Value(first, number)),), index[1], some))
        return b.op("where", empty, b.const(0.0, REAL), total, dtype=REAL)

    inputs = (weight, indices, offsets, *([weights] if weights is not None else []))
    result = imp.tensor((count, wide), weight.dtype, bag, *inputs)
    result.name = "bags"
    return result
