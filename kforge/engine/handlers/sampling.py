"""Handlers of `grid_sample`: images read at places that another tensor gives, in two and three dimensions.

Places, borders and weights are those of torch's CUDA kernels, in their order of operations: a place beside every border
is rounded as theirs. What lies outside of the image is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from kforge.engine.graph.importer import Importer, Meta, cast, handles
from kforge.engine.graph.ir import REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, Value
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
CUBIC = -0.75  # torch's constant of the cubic kernel
LIMITS = (-(2.0**31), 2.0**31 - 1.0)  # places beyond are outside, wherever they are

Spot = tuple[Expr, Expr | None]
"""A whole place as a float, and whether it is within the image; None where it always is."""


class _Axis:
    """One dimension of the image: how a coordinate in [-1, 1] becomes a place."""

    def __init__(self, b: Builder, size: Poly, padding: int, corners: bool) -> None:
        self.b, self.size, self.padding, self.corners = b, size, padding, corners
        self.length = b.cast(b.index(size), REAL)
        self.last = b.cast(b.index(size - 1), REAL)

    def real(self, name: str, *args: Expr | float) -> Expr:
        return self.b.op(name, *(self.b.const(a, REAL) if isinstance(a, float) else a for a in args), dtype=REAL)

    def test(self, name: str, x: Expr, y: Expr | float) -> Expr:
        return self.b.op(name, x, self.b.const(y, REAL) if isinstance(y, float) else y, dtype="bool")

    def scaled(self, coordinate: Expr) -> Expr:
        """The place before borders count: [-1, 1] spans the centres of the outer elements, or their outer edges."""
        moved = self.real("add", coordinate, 1.0)
        if self.corners:
            return self.real("mul", self.real("mul", moved, 0.5), self.last)
        return self.real("mul", self.real("sub", self.real("mul", moved, self.length), 1.0), 0.5)

    def bordered(self, place: Expr) -> Expr:
        """The place after the padding's rule; far outside where it is no number or too large for an integer."""
        if self.padding == REFLECTION:
            place = self.clipped(self.reflected(place))
        elif self.padding == BORDER:
            place = self.clipped(place)
        fits = self.b.op("and", self.test("ge", place, LIMITS[0]), self.test("lt", place, LIMITS[1]), dtype="bool")
        return self.b.op("where", fits, place, self.b.const(-100.0, REAL), dtype=REAL)

    def clipped(self, place: Expr) -> Expr:
        """Within [0, size - 1]; what is no number becomes 0."""
        low = self.b.op("where", self.test("gt", place, 0.0), place, self.b.const(0.0, REAL), dtype=REAL)
        return self.b.op("where", self.test("lt", low, self.last), low, self.last, dtype=REAL)

    def reflected(self, place: Expr) -> Expr:
        """Mirrored at the outer centres, or at the outer edges, as often as it takes."""
        start = 0.0 if self.corners else -0.5
        span = self.last if self.corners else self.length
        away = self.real("abs", self.real("sub", place, start))
        extra = self.real("fmod", away, span)
        turns = self.real("floor", self.real("div", away, span))
        even = self.test("eq", self.real("fmod", turns, 2.0), 0.0)
        there = self.real("add", extra, start)
        back = self.real("add", self.real("sub", span, extra), start)
        mirrored = self.b.op("where", even, there, back, dtype=REAL)
        if not self.corners or self.size.constant not in (None, 1):
            return mirrored
        single = self.test("eq", self.last, 0.0)  # nothing to mirror at
        return self.b.op("where", single, self.b.const(0.0, REAL), mirrored, dtype=REAL)

    def inside(self, place: Expr) -> Expr:
        return self.b.op("and", self.test("ge", place, 0.0), self.test("le", place, self.last), dtype="bool")

    def neighbour(self, low: Expr) -> Spot:
        """The place after `low`."""
        high = self.real("add", low, 1.0)
        return high, self.inside(high) if self.padding == ZEROS else self.test("le", high, self.last)

    def spot(self, place: Expr) -> Spot:
        return place, self.inside(place) if self.padding == ZEROS else None


def _read(ctx: Context, x: Tensor, lead: Index, spots: Sequence[Spot], guard: Guard) -> Expr:
    """The element at whole places, 0 outside of the image, where nothing is read."""
    b, within = ctx.builder, None
    for _, test in spots:
        within = test if within is None else within if test is None else b.op("and", within, test, dtype="bool")
    rank = len(spots)
    kinds = ["int64"] * (rank - 1) + ["int32"]
    places = [Poly.of(Value(b.cast(p, k), s)) for (p, _), k, s in zip(spots, kinds, x.shape[-rank:], strict=True)]
    if within is None:
        return cast(ctx, ctx.value(x, (*lead, *places), guard), REAL)
    both = within if guard is None else b.op("and", guard, within, dtype="bool")
    value = cast(ctx, ctx.value(x, (*lead, *places), both), REAL)
    return b.op("where", within, value, b.const(0.0, REAL), dtype=REAL)


@handles("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def _grid_sample(imp: Importer, meta: Meta, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    rank = len(x.shape) - 2
    imp.equal(x.shape[0], grid.shape[0])
    imp.fix(grid.shape[-1])
    shape = (x.shape[0], x.shape[1], *grid.shape[1:-1])
    combine = {BILINEAR: _linear, NEAREST: _nearest, BICUBIC: _cubic}[mode]

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        axes = [_Axis(ctx.builder, size, padding, corners) for size in x.shape[2:]]
        where = (index[0], *index[2:])
        given = [
            cast(ctx, ctx.value(grid, (*where, Poly.of(rank - 1 - d)), guard), REAL) for d in range(rank)
        ]  # the last dimension's coordinate comes first
        return combine(axes, given, lambda spots: _read(ctx, x, index[:2], spots, guard))

    return imp.tensor(shape, meta.dtype, at, x, grid)


Read = Callable[[Sequence[Spot]], Expr]


def _linear(axes: Sequence[_Axis], given: Sequence[Expr], read: Read) -> Expr:
    """The neighbours, each by the share of the cell that lies across from it; the last dimension varies first."""
    ends: list[list[tuple[Spot, Expr]]] = []
    for axis, coordinate in zip(axes, given, strict=True):
        place = axis.bordered(axis.scaled(coordinate))
        low = axis.real("floor", place)
        high = axis.neighbour(low)
        ends.append([(axis.spot(low), axis.real("sub", high[0], place)), (high, axis.real("sub", place, low))])
    total: Expr | None = None
    for corner in product(*ends):
        weight = corner[-1][1]
        for _, share in reversed(corner[:-1]):
            weight = axes[0].real("mul", weight, share)
        term = axes[0].real("mul", read([spot for spot, _ in corner]), weight)
        total = term if total is None else axes[0].real("add", total, term)
    assert total is not None
    return total


def _nearest(axes: Sequence[_Axis], given: Sequence[Expr], read: Read) -> Expr:
    """The nearest element, of two equally near ones the even."""
    pairs = zip(axes, given, strict=True)
    return read([a.spot(a.real("round", a.bordered(a.scaled(c)))) for a, c in pairs])


def _cubic(axes: Sequence[_Axis], given: Sequence[Expr], read: Read) -> Expr:
    """Sixteen neighbours; borders count for each of them, not for the place between them."""
    lines: list[list[tuple[Spot, Expr]]] = []
    for axis, coordinate in zip(axes, given, strict=True):
        place = axis.scaled(coordinate)
        low = axis.real("floor", place)
        shares = _cubic_shares(axis, axis.real("sub", place, low))
        steps = [axis.real("add", low, float(k)) if k else low for k in (-1, 0, 1, 2)]
        lines.append([(axis.spot(axis.bordered(s)), w) for s, w in zip(steps, shares, strict=True)])
    rows = []
    for down, _ in lines[0]:
        terms = [axes[0].real("mul", read([down, across]), share) for across, share in lines[1]]
        rows.append(_sum(axes[0], terms))
    return _sum(axes[0], [axes[0].real("mul", row, share) for row, (_, share) in zip(rows, lines[0], strict=True)])


def _sum(axis: _Axis, terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = axis.real("add", total, term)
    return total


def _cubic_shares(axis: _Axis, t: Expr) -> list[Expr]:
    """Weights of the four elements around a place, `t` of a step after the second."""

    def near(x: Expr) -> Expr:  # ((A + 2) x - (A + 3)) x^2 + 1
        inner = axis.real("sub", axis.real("mul", x, CUBIC + 2), CUBIC + 3)
        return axis.real("add", axis.real("mul", axis.real("mul", inner, x), x), 1.0)

    def far(x: Expr) -> Expr:  # ((A x - 5 A) x + 8 A) x - 4 A
        inner = axis.real("sub", axis.real("mul", x, CUBIC), 5 * CUBIC)
        inner = axis.real("add", axis.real("mul", inner, x), 8 * CUBIC)
        return axis.real("sub", axis.real("mul", inner, x), 4 * CUBIC)

    left = axis.real("sub", axis.b.const(1.0, REAL), t)
    return [far(axis.real("add", t, 1.0)), near(t), near(left), far(axis.real("add", left, 1.0))]
