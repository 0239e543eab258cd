"""Handlers of what finds the bin of a value: bucketize, searchsorted, histc, bincount."""

from __future__ import annotations

from typing import Any

from kforge.engine.graph.importer import Importer, Meta, cast, computing, constant, handles, literal
from kforge.engine.graph.ir import INTEGERS, REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, Value
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.composites import reduce
from kforge.engine.handlers.indexing import scattered

MOST_BOUNDARIES = 1 << 24


def search(imp: Importer, boundaries: Tensor, x: Tensor, dtype: str, right: bool) -> Tensor:
    """How many boundaries of a row lie below each value (right: or are equal to it). A NaN lies above them all.

    By halving in torch's own steps, so that boundaries in no order give what they give there. Their number is fixed
    and the steps are written out, without a branch: each is one load.
    """
    line = boundaries.shape[-1]
    imp.fix(line)
    count = line.hint()
    if not 0 < count < MOST_BOUNDARIES:
        raise imp.reject(f"{count} boundaries")
    lead = len(boundaries.shape) - 1
    if lead:
        for a, b in zip(boundaries.shape[:-1], x.shape[:-1], strict=True):
            imp.equal(a, b)
    kind = REAL if REAL in (computing(boundaries.dtype), computing(x.dtype)) else "int64"

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        value = cast(ctx, ctx.value(x, index, guard), kind)
        low, high = b.const(0, "int32"), b.const(count, "int32")
        for _ in range(count.bit_length()):
            width = b.op("sub", high, low, dtype="int32")
            middle = b.op("add", low, b.op("shr", width, b.const(1, "int32"), dtype="int32"), dtype="int32")
            left = b.op("lt", low, high, dtype="bool")  # boundaries to look at
            both = left if guard is None else b.op("and", guard, left, dtype="bool")
            place = Poly.of(Value(middle, Poly.of(count)))
            limit = cast(ctx, ctx.value(boundaries, (*index[:lead], place), both), kind)
            above = b.op("not", b.op("gt" if right else "ge", limit, value, dtype="bool"), dtype="bool")
            above = b.op("and", left, above, dtype="bool")
            low = b.op("where", above, b.op("add", middle, b.const(1, "int32"), dtype="int32"), low, dtype="int32")
            high = b.op("where", above, high, middle, dtype="int32")  # where none are left, middle is high
        return b.cast(low, dtype)

    return imp.tensor(x.shape, dtype, at, boundaries, x)


@handles("bucketize")
def _bucketize(imp: Importer, meta: Meta, x: Any, boundaries: Tensor, *, right: bool = False, **_: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise imp.reject("a number to find the bin of")
    return search(imp, boundaries, x, meta.dtype, right)


@handles("searchsorted")
def _searchsorted(
    imp: Importer,
    meta: Meta,
    boundaries: Tensor,
    x: Any,
    *,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    **_: Any,
) -> Tensor:
    if not isinstance(x, Tensor) or sorter is not None:
        raise imp.reject("a number to find the bin of, or an order of the boundaries")
    return search(imp, boundaries, x, meta.dtype, right or side == "right")


@handles("histc")
def _histc(imp: Importer, meta: Meta, x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """Counts by atomics: sums of ones, exact below 2^24. Values outside of the range count nowhere."""
    if x.dtype not in ("float32", "float64"):
        raise imp.reject(f"elements of {x.dtype}")
    ends: list[Tensor]
    if low == high:
        ends = [reduce(imp, kind, x, None, False, x.dtype) for kind in ("min", "max")]
    else:
        ends = [constant(imp, float(v), x.dtype, 0) for v in (low, high)]
    zeros = imp.map(lambda b, v: v, constant(imp, 0.0, meta.dtype, 0), dtype=meta.dtype, compute=REAL)
    base = imp.view(zeros, [Poly.of(bins)], lambda i: ())

    def range_at(ctx: Context, guard: Guard) -> tuple[Expr, Expr]:
        b = ctx.builder
        first, last = (cast(ctx, ctx.value(t, (), guard), REAL) for t in ends)
        if low != high:
            return first, last
        same, one = b.op("eq", first, last, dtype="bool"), b.const(1.0, REAL)
        wide = (b.op("sub", first, one, dtype=REAL), b.op("add", last, one, dtype=REAL))
        return b.op("where", same, wide[0], first, dtype=REAL), b.op("where", same, wide[1], last, dtype=REAL)

    def counts(b: Builder, v: Expr, first: Expr, last: Expr) -> Expr:
        return b.op("and", b.op("ge", v, first, dtype="bool"), b.op("le", v, last, dtype="bool"), dtype="bool")

    def one(ctx: Context, index: Index, guard: Guard) -> Expr:
        b, v = ctx.builder, cast(ctx, ctx.value(x, index, guard), REAL)
        counted = counts(b, v, *range_at(ctx, guard))
        return b.op("where", counted, b.const(1.0, REAL), b.const(0.0, REAL), dtype=REAL)

    def places(ctx: Context, index: Index, guard: Guard) -> Index:
        b, v = ctx.builder, cast(ctx, ctx.value(x, index, guard), REAL)
        first, last = range_at(ctx, guard)
        away = b.op("mul", b.op("sub", v, first, dtype=REAL), b.const(float(bins), REAL), dtype=REAL)
        spot = b.cast(b.op("div", away, b.op("sub", last, first, dtype=REAL), dtype=REAL), "int64")
        end, none = b.const(bins - 1, "int64"), b.const(0, "int64")
        spot = b.op("where", b.op("lt", spot, end, dtype="bool"), spot, end, dtype="int64")
        return (Poly.of(Value(b.op("where", counts(b, v, first, last), spot, none, dtype="int64"), Poly.of(bins))),)

    return scattered(imp, meta, base, places, x.shape, imp.tensor(x.shape, meta.dtype, one, x, *ends), True)


@handles("bincount")
def _bincount(imp: Importer, meta: Meta, x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number occurs, or the sum of its weights, where no more than the first `minlength` are asked for.

    How many there are beyond these depends on data; they are counted nowhere. Atomics, in doubles or integers.
    """
    for user in imp.node.users:
        cut = str(user.target).startswith("aten.slice.") and tuple(user.args[1:3]) == (0, 0) and len(user.args) == 4
        if not cut or not 0 < user.args[3] <= minlength:
            raise imp.reject("its size depends on data; torch.bincount(x, minlength=n)[:n] has one that is known")
    if x.dtype not in INTEGERS:
        raise imp.reject(f"elements of {x.dtype}")
    dtype = str(imp.node.meta["val"].dtype).removeprefix("torch.")
    target = computing(dtype)
    zero = constant(imp, 0, dtype, 0)
    base = imp.view(zero, [Poly.of(minlength)], lambda i: ())
    if weights is not None:
        imp.equal(x.shape[0], weights.shape[0])

    def number(ctx: Context, index: Index, guard: Guard) -> tuple[Expr, Expr]:
        b = ctx.builder
        value = cast(ctx, ctx.value(x, index, guard), "int64")
        low = b.op("ge", value, b.const(0, "int64"), dtype="bool")
        return value, b.op("and", low, b.op("lt", value, b.const(minlength, "int64"), dtype="bool"), dtype="bool")

    def one(ctx: Context, index: Index, guard: Guard) -> Expr:
        own = literal(ctx, 1, target) if weights is None else cast(ctx, ctx.value(weights, index, guard), target)
        return ctx.builder.op("where", number(ctx, index, guard)[1], own, literal(ctx, 0, target), dtype=target)

    def places(ctx: Context, index: Index, guard: Guard) -> Index:
        value, counted = number(ctx, index, guard)
        chosen = ctx.builder.op("where", counted, value, ctx.builder.const(0, "int64"), dtype="int64")
        return (Poly.of(Value(chosen, Poly.of(minlength))),)

    inputs = (x,) if weights is None else (x, weights)
    return scattered(imp, meta, base, places, x.shape, imp.tensor(x.shape, dtype, one, *inputs), True)
