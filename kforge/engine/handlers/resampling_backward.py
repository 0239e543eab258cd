"""Handlers of what linear upsampling hands back: each element sums its shares of the results it was mixed into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, prod

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, cast, handles
from kforge.engine.graph.ir import FLOATS, REAL, Expr
from kforge.engine.graph.symbols import Poly, Value, Var
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.resampling import _single as single
from kforge.engine.handlers.windows import UnevenAxis, window_tensor

TOGETHER = 49  # results of all dimensions that one kernel mixes for an element, at most


@dataclass(frozen=True)
class Shares(UnevenAxis):
    """One dimension: `size` results were mixed of `out` elements, each of the two around its place times `scale`.

    corners: the first and last result are the first and last element; else places are those of centres.
    """

    scale: float = 1.0
    corners: bool = False

    def place(self, ctx: Context, result: Expr) -> Expr:
        """Where among the elements a result lies, in torch's order of roundings."""
        b, half = ctx.builder, ctx.builder.const(0.5, REAL)
        scale = b.const(self.scale, REAL)
        if self.corners:
            return b.op("mul", scale, result, dtype=REAL)
        centre = b.op("mul", scale, b.op("add", result, half, dtype=REAL), dtype=REAL)
        zero, spot = b.const(0.0, REAL), b.op("sub", centre, half, dtype=REAL)
        return b.op("where", b.op("lt", spot, zero, dtype="bool"), zero, spot, dtype=REAL)

    def share(self, ctx: Context, element: Poly, result: Var) -> Expr:
        """How much of an element is in a result. Beyond the last element there is the last one again."""
        b, last = ctx.builder, self.out.hint() - 1
        spot = self.place(ctx, b.cast(b.index(Poly.of(result)), REAL))
        lower = b.cast(spot, "int32")
        inside = b.op("lt", lower, b.const(last, "int32"), dtype="bool")
        lower = b.op("where", inside, lower, b.const(last, "int32"), dtype="int32")
        upper = b.op("where", inside, b.op("add", lower, b.const(1, "int32"), dtype="int32"), lower, dtype="int32")
        more = b.op("sub", spot, b.cast(lower, REAL), dtype=REAL)
        own, zero = b.cast(b.index(element), "int32"), b.const(0.0, REAL)
        parts = [
            b.op("where", b.op("eq", own, near, dtype="bool"), part, zero, dtype=REAL)
            for near, part in ((lower, b.op("sub", b.const(1.0, REAL), more, dtype=REAL)), (upper, more))
        ]
        return b.op("add", *parts, dtype=REAL)

    def _bounds(self, element: float) -> tuple[float, float]:
        """The results between which an element has a share, as real numbers."""
        if self.scale == 0:
            return -1.0, float(self.size.hint())
        shift = 0.0 if self.corners else 0.5
        return tuple((element + side + shift) / self.scale - shift for side in (-1, 1))  # type: ignore[return-value]

    def span(self, element: int) -> tuple[int, int]:
        """The first result that may have a share of an element, and the one after the last."""
        low, high = self._bounds(element)
        first = 0 if element == 0 else max(0, floor(low))
        return first, self.size.hint() if element == self.out.hint() - 1 else min(self.size.hint(), floor(high) + 2)

    def ends(self, ctx: Context, element: Poly) -> tuple[Poly, Poly]:
        b, count = ctx.builder, self.size.hint()
        own = b.index(element)
        if self.scale == 0:
            return Poly(), self.size
        shift = 0.0 if self.corners else 0.5

        def bound(side: int) -> Expr:
            place = b.op("add", b.cast(own, REAL), b.const(side + shift, REAL), dtype=REAL)
            there = b.op(
                "sub", b.op("div", place, b.const(self.scale, REAL), dtype=REAL), b.const(shift, REAL), dtype=REAL
            )
            return b.cast(there, "int32")

        zero, end = b.const(0, "int32"), b.const(count, "int32")
        low, high = bound(-1), b.op("add", bound(1), b.const(2, "int32"), dtype="int32")
        low = b.op("where", b.op("gt", low, zero, dtype="bool"), low, zero, dtype="int32")
        ends = b.op("eq", own, b.const(self.out.hint() - 1, "int64"), dtype="bool")
        high = b.op("where", b.op("lt", high, end, dtype="bool"), high, end, dtype="int32")
        high = b.op("where", ends, end, high, dtype="int32")
        low = b.op("where", b.op("eq", own, b.const(0, "int64"), dtype="bool"), zero, low, dtype="int32")
        return Poly.of(Value(low, self.size)), Poly.of(Value(high, self.size + 1))


def _shares(imp: Importer, grad: Tensor, size: int, d: int, corners: bool, factor: float | None) -> Shares:
    imp.fix(grad.shape[d])
    count = grad.shape[d].hint()
    if corners:
        scale = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = 1.0 / factor if factor is not None and factor > 0 else size / count
    found = Shares(grad.shape[d], Poly.of(size), Poly.of(1), scale=single(scale), corners=corners)
    taps = max(last - first for first, last in map(found.span, range(size)))
    return Shares(found.size, found.out, Poly.of(min(count, taps + 1)), scale=found.scale, corners=corners)


def _handed_back(imp: Importer, grad: Tensor, axes: Sequence[Shares], dtype: str) -> Tensor:
    """For each element of the last dimensions the sum of its shares."""
    rank = len(axes)

    def part(ctx: Context, index: Index, taps: tuple[Var, ...], places: tuple[Var, ...], guard: Guard) -> Expr:
        value = cast(ctx, ctx.value(grad, (*index[:-rank], *(Poly.of(p) for p in places)), guard), REAL)
        for axis, o, place in zip(axes, index[-rank:], places, strict=True):
            value = ctx.builder.op("mul", value, axis.share(ctx, o, place), dtype=REAL)
        return value

    return window_tensor(imp, (*grad.shape[:-rank], *(a.out for a in axes)), dtype, "sum", axes, part, [grad])


@handles("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward")
def _upsample_backward(
    imp: Importer,
    meta: Meta,
    grad: Tensor,
    size: Sequence[int],
    shape: Sequence[int],
    corners: bool,
    *factors: float | None,
) -> Tensor:
    if grad.dtype not in FLOATS:
        raise imp.reject(f"images of {grad.dtype}")
    rank = len(size)
    given = (*factors, *([None] * rank))[:rank]
    axes = [_shares(imp, grad, int(shape[d - rank]), d - rank, corners, given[d]) for d in range(rank)]
    if prod(a.taps.hint() for a in axes) <= TOGETHER:
        return _handed_back(imp, grad, axes, meta.dtype)
    turn = HANDLERS["transpose"]
    for d, axis in zip(range(-rank, 0), axes, strict=True):
        last = _handed_back(imp, grad if d == -1 else turn(imp, meta, grad, d, -1), [axis], meta.dtype)
        grad = last if d == -1 else turn(imp, meta, last, d, -1)
    return grad
