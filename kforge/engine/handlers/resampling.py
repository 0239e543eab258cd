"""Handlers of operators that read at computed places: upsampling, sliding views, slices written into a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from kforge.engine.graph.importer import Importer, Meta, cast, computing, handles, literal
from kforge.engine.graph.ir import REAL, Expr
from kforge.engine.graph.symbols import Poly, Value, floor_div, remainder
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.slices import both
from kforge.errors import NoCandidate


def _scaled(imp: Importer, meta: Meta, x: Tensor, rank: int, factors: Sequence[float] | None) -> list[Poly]:
    """Sizes of the result: multiples of the operand's where the factors are whole, else fixed."""
    sizes = []
    for d in range(rank):
        size, out = x.shape[d - rank], meta.shape[d - rank]
        factor = None if factors is None else factors[d]
        if factor is not None and factor == int(factor):
            sizes.append(size * int(factor))
            continue
        imp.fix(size)
        sizes.append(Poly.of(out))
    return sizes


@handles("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest(
    imp: Importer, meta: Meta, x: Tensor, size: Sequence[int] | None, factors: Sequence[float] | None = None
) -> Tensor:
    """torch's floor(place * scale) in single precision; a shift where the factor is a power of two, which is exact."""
    rank = next(n for n in (1, 2, 3) if f"{n}d" in meta.operator)
    sizes = _scaled(imp, meta, x, rank, factors)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b, places = ctx.builder, []
        for d in range(rank):
            own, place = x.shape[d - rank], index[d - rank]
            hint, wide = own.hint(), meta.shape[d - rank]
            factor = None if factors is None else factors[d]
            if factor is None and wide % hint == 0:
                factor = float(wide // hint)
            if factor is not None and factor == int(factor) and int(factor) & (int(factor) - 1) == 0:
                places.append(floor_div(place, Poly.of(int(factor))))
                continue
            scale = hint / wide if factors is None else 1.0 / factors[d]
            spot = b.op("mul", b.cast(b.index(place), REAL), b.const(_single(scale), REAL), dtype=REAL)
            spot = b.cast(b.op("floor", spot, dtype=REAL), _whole(d, rank))
            places.append(Poly.of(Value(_at_most(ctx, spot, own - 1), own)))
        return ctx.value(x, (*index[: len(index) - rank], *places), guard)

    return imp.tensor((*x.shape[: len(x.shape) - rank], *sizes), meta.dtype, at, x)


def _single(value: float) -> float:
    """The number that single precision makes of it."""
    import struct

    return float(struct.unpack("f", struct.pack("f", value))[0])


def _at_most(ctx: Context, e: Expr, limit: Poly) -> Expr:
    b = ctx.builder
    top = b.cast(b.index(limit), e.dtype)
    return b.op("where", b.op("lt", e, top, dtype="bool"), e, top, dtype=e.dtype)


def _whole(d: int, rank: int) -> str:
    """The type of a place: 32 bits along a row, wide where it is multiplied by the size of a row."""
    return "int32" if d == rank - 1 else "int64"


@handles("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _linear(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    size: Sequence[int] | None,
    align_corners: bool,
    factors: Sequence[float] | None = None,
) -> Tensor:
    """Between the two neighbours of each dimension, at torch's places: half a step from the border, or on it."""
    rank = next(n for n in (1, 2, 3) if f"{n}d" in meta.operator)
    sizes = _scaled(imp, meta, x, rank, factors)
    if align_corners:
        for d in range(rank):
            imp.fix(x.shape[d - rank])  # the scale depends on the size

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        zero, one, half = (b.const(v, REAL) for v in (0.0, 1.0, 0.5))
        pairs: list[tuple[Poly, Poly, Expr]] = []
        for d in range(rank):
            own, place = x.shape[d - rank], b.cast(b.index(index[d - rank]), REAL)
            hint, wide = own.hint(), meta.shape[d - rank]
            if align_corners:
                scale = b.const(_single((hint - 1) / (wide - 1) if wide > 1 else 0.0), REAL)
                spot = b.op("mul", place, scale, dtype=REAL)
            else:
                scale = b.const(_single(hint / wide if factors is None else 1.0 / factors[d]), REAL)
                spot = b.op("mul", b.op("add", place, half, dtype=REAL), scale, dtype=REAL)
                spot = b.op("sub", spot, half, dtype=REAL)
                spot = b.op("where", b.op("lt", spot, zero, dtype="bool"), zero, spot, dtype=REAL)
            kind = _whole(d, rank)
            low = _at_most(ctx, b.cast(spot, kind), own - 1)
            high = _at_most(ctx, b.op("add", low, b.const(1, kind), dtype=kind), own - 1)
            share = b.op("sub", spot, b.cast(low, REAL), dtype=REAL)
            pairs.append((Poly.of(Value(low, own)), Poly.of(Value(high, own)), share))

        def between(d: int, places: tuple[Poly, ...]) -> Expr:
            if d == rank:
                return cast(ctx, ctx.value(x, (*index[: len(index) - rank], *places), guard), REAL)
            low, high, share = pairs[d]
            left = b.op("mul", b.op("sub", one, share, dtype=REAL), between(d + 1, (*places, low)), dtype=REAL)
            right = b.op("mul", share, between(d + 1, (*places, high)), dtype=REAL)
            return b.op("add", left, right, dtype=REAL)

        return between(0, ())

    return imp.tensor((*x.shape[: len(x.shape) - rank], *sizes), meta.dtype, at, x)


@handles("unfold")
def _unfold(imp: Importer, meta: Meta, x: Tensor, dim: int, width: int, step: int) -> Tensor:
    """Overlapping pieces of one dimension as a dimension of their own, the last."""
    d = dim % len(x.shape)
    count = imp.derived(x.shape[d], step - width, step)
    shape = (*x.shape[:d], count, *x.shape[d + 1 :], Poly.of(width))
    return imp.view(x, shape, lambda i: (*i[:d], i[d] * step + i[-1], *i[d + 1 : -1]))


@handles("slice_scatter")
def _slice_scatter(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    d = dim % len(x.shape)
    imp.fix(x.shape[d])
    size = x.shape[d].hint()
    first, last, _ = slice(start, end).indices(size)
    for axis in range(len(x.shape)):
        if axis != d:
            imp.equal(x.shape[axis], source.shape[axis])

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b, target = ctx.builder, computing(meta.dtype)
        place = b.index(index[d])
        tests = []
        if first > 0:
            tests.append(b.op("ge", place, b.const(first, "int64"), dtype="bool"))
        if last < size:
            tests.append(b.op("lt", place, b.const(last, "int64"), dtype="bool"))
        spot = index[d] - first
        if step != 1:
            before = -(-first // step)  # counted from a place below all others: no quotient is negative
            spot = floor_div(index[d] + (before * step - first), Poly.of(step)) - before
            on = b.index(remainder(index[d] + (before * step - first), Poly.of(step)))
            tests.append(b.op("eq", on, b.const(0, "int64"), dtype="bool"))
        own = (*index[:d], spot, *index[d + 1 :])
        if not tests:
            return cast(ctx, ctx.value(source, own, guard), target)
        inside = tests[0]
        for test in tests[1:]:
            inside = b.op("and", inside, test, dtype="bool")
        outside = b.op("not", inside, dtype="bool")
        here = cast(ctx, ctx.value(source, own, both(ctx, guard, inside)), target)
        try:
            rest = cast(ctx, ctx.value(x, index, both(ctx, guard, outside)), target)
        except NoCandidate as error:
            if error.operator != "empty":
                raise
            rest = literal(ctx, 0, target)  # memory that nothing was written to: any value is right
        return b.op("where", inside, here, rest, dtype=target)

    return imp.tensor(x.shape, meta.dtype, at, x, source)
