"""Handlers of upsampling with antialias=True: each result is a weighted mean of all elements that its filter reaches.

A filter that shrinks an image grows with the scale. Rows first, then columns, each a window with weights worked out as
torch does; the mean of few elements is one kernel, of many two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, cast, handles
from kforge.engine.graph.ir import FLOATS, REAL, Expr
from kforge.engine.graph.symbols import Poly, Value, Var
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.resampling import _single as single
from kforge.engine.handlers.windows import UnevenAxis, window_tensor

CUBIC = -0.5  # torch's constant of the cubic filter that antialiases
TOGETHER = 49  # elements of a window of both dimensions, at most


@dataclass(frozen=True)
class Filter(UnevenAxis):
    """One dimension: `scale` elements of the operand for each of the result, a filter `width` of them wide."""

    scale: float = 1.0
    width: int = 2

    @property
    def stretch(self) -> float:
        return max(self.scale, 1.0)

    def centre(self, ctx: Context, o: Poly) -> Expr:
        b = ctx.builder
        place = b.op("add", b.cast(b.index(o), REAL), b.const(0.5, REAL), dtype=REAL)
        return b.op("mul", place, b.const(self.scale, REAL), dtype=REAL)

    def ends(self, ctx: Context, o: Poly) -> tuple[Poly, Poly]:
        """The first element that counts, and the one after the last."""
        b = ctx.builder
        reach, half = b.const(self.width / 2 * self.stretch, REAL), b.const(0.5, REAL)
        centre, size = self.centre(ctx, o), b.cast(b.index(self.size), "int32")
        zero = b.const(0, "int32")
        low = b.op("add", b.op("sub", centre, reach, dtype=REAL), half, dtype=REAL)
        high = b.op("add", b.op("add", centre, reach, dtype=REAL), half, dtype=REAL)
        first, last = b.cast(low, "int32"), b.cast(high, "int32")
        first = b.op("where", b.op("gt", first, zero, dtype="bool"), first, zero, dtype="int32")
        last = b.op("where", b.op("lt", last, size, dtype="bool"), last, size, dtype="int32")
        return Poly.of(Value(first, self.size)), Poly.of(Value(last, self.size + 1))

    def weight(self, ctx: Context, o: Poly, tap: Var) -> Expr:
        """The filter's value at a tap, before weights are divided by their sum.

        Rounded in torch's order: a weight that is 0 there makes a NaN of an infinity, and has to be 0 here.
        """
        b = ctx.builder
        first, _ = self.ends(ctx, o)
        gap = b.op("sub", b.cast(b.index(first), REAL), self.centre(ctx, o), dtype=REAL)
        gap = b.op("add", b.cast(b.index(Poly.of(tap)), REAL), gap, dtype=REAL)
        gap = b.op("add", gap, b.const(0.5, REAL), dtype=REAL)
        if self.scale > 1:
            gap = b.op("mul", gap, b.const(single(1.0 / self.scale), REAL), dtype=REAL)
        return (_triangle if self.width == 2 else _cubic)(ctx, b.op("abs", gap, dtype=REAL))


def _triangle(ctx: Context, x: Expr) -> Expr:
    b, one = ctx.builder, ctx.builder.const(1.0, REAL)
    near = b.op("lt", x, one, dtype="bool")
    return b.op("where", near, b.op("sub", one, x, dtype=REAL), b.const(0.0, REAL), dtype=REAL)


def _cubic(ctx: Context, x: Expr) -> Expr:
    b = ctx.builder

    def polynomial(*factors: float) -> Expr:
        total = b.const(factors[0], REAL)
        for f in factors[1:]:
            total = b.op("mul", total, x, dtype=REAL)
            total = total if f == 0 else b.op("add", total, b.const(f, REAL), dtype=REAL)
        return total

    near = polynomial(CUBIC + 2, -(CUBIC + 3), 0, 1)
    far = b.op("mul", polynomial(1.0, -5.0, 8.0, -4.0), b.const(CUBIC, REAL), dtype=REAL)
    outer = b.op("where", b.op("lt", x, b.const(2.0, REAL), dtype="bool"), far, b.const(0.0, REAL), dtype=REAL)
    return b.op("where", b.op("lt", x, b.const(1.0, REAL), dtype="bool"), near, outer, dtype=REAL)


def _filter(imp: Importer, meta: Meta, x: Tensor, d: int, corners: bool, factor: float | None, width: int) -> Filter:
    size, out = x.shape[d], meta.shape[d]
    imp.fix(size)
    n = size.hint()
    if corners:
        scale = (n - 1) / (out - 1) if out > 1 else 0.0
    else:
        scale = 1.0 / factor if factor is not None and factor > 0 else n / out
    scale = single(scale)
    taps = ceil(width / 2 * max(scale, 1.0)) * 2 + 1
    return Filter(size, Poly.of(out), Poly.of(min(taps, n)), scale=scale, width=width)


def _filtered(imp: Importer, x: Tensor, filters: Sequence[Filter], dtype: str) -> Tensor:
    """The last dimensions of x through filters: sums of weighted elements over sums of weights."""
    rank = len(filters)
    shape = (*x.shape[:-rank], *(f.out for f in filters))
    Body = Callable[[Context, Index, tuple[Var, ...], tuple[Var, ...], Guard], Expr]

    def element(ctx: Context, index: Index, taps: tuple[Var, ...], places: tuple[Var, ...], guard: Guard) -> Expr:
        value = cast(ctx, ctx.value(x, (*index[:-rank], *(Poly.of(p) for p in places)), guard), REAL)
        for f, o, tap in zip(filters, index[-rank:], taps, strict=True):
            value = ctx.builder.op("mul", value, f.weight(ctx, o, tap), dtype=REAL)
        return value

    def weights(k: int) -> Body:
        def body(ctx: Context, index: Index, taps: tuple[Var, ...], places: tuple[Var, ...], guard: Guard) -> Expr:
            return filters[k].weight(ctx, index[0], taps[0])

        return body

    total = window_tensor(imp, shape, dtype, "sum", filters, element, [x])
    sums = [window_tensor(imp, (f.out,), dtype, "sum", (f,), weights(k), []) for k, f in enumerate(filters)]

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        value = ctx.value(total, index, guard)
        for s, o in zip(sums, index[-rank:], strict=True):
            value = ctx.builder.op("div", value, ctx.value(s, (o,), guard), dtype=REAL)
        return value

    return imp.tensor(shape, dtype, at, total, *sums)


@handles("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _antialiased(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    size: Sequence[int] | None,
    corners: bool,
    *factors: float | Sequence[float] | None,
) -> Tensor:
    if x.dtype not in FLOATS:
        raise imp.reject(f"images of {x.dtype}")
    given = factors[0] if len(factors) == 1 and isinstance(factors[0], (list, tuple)) else factors or (None, None)
    width = 2 if "bilinear" in meta.operator else 4
    down, across = (_filter(imp, meta, x, d, corners, given[d], width) for d in (-2, -1))  # type: ignore[index,arg-type]
    # a CPU leaves a dimension of the right size alone; a GPU weights its elements with 1 and 0, which infinities show
    stays = [imp.node.meta["val"].device.type == "cpu" and f.size == f.out for f in (down, across)]
    if not any(stays) and down.taps.hint() * across.taps.hint() <= TOGETHER:
        return _filtered(imp, x, (down, across), meta.dtype)
    turn = HANDLERS["transpose"]
    rows = x if stays[1] else _filtered(imp, x, (across,), meta.dtype)
    if stays[0]:
        return imp.view(rows, rows.shape, lambda i: i)
    columns = _filtered(imp, turn(imp, meta, rows, -1, -2), (down,), meta.dtype)
    return turn(imp, meta, columns, -1, -2)
