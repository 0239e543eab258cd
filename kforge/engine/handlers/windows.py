"""Handlers of operators that reduce over windows: pooling, depthwise and small convolutions.

A window is one expression (ir.Window): loops over its taps, a place in the operand for each, and a body that reads
there. Sizes of results are sizes of their own (symbols.Derived), so that indices stay products of names. A window of
a window is computed in place only where no value is needed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, cast, computing, handles
from kforge.engine.graph.ir import REAL, Expr, Reach, Window
from kforge.engine.graph.symbols import Poly, Tap, Value, Var, floor_div
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor, Within, linear
from kforge.engine.handlers.products import library_convolution

FUSED_TAPS = 256  # of a window of windows, at most
DEPTHWISE_TAPS = 1024
CHANNEL_TAPS = 64  # terms of one sum, of a convolution over several channels


@dataclass(frozen=True)
class Axis:
    """One dimension of a window: its taps are at o * stride - padding + tap * dilation, o the place in the result."""

    size: Poly
    out: Poly
    taps: Poly
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    transposed: bool = False
    adaptive: bool = False

    def reach(self, ctx: Context, o: Poly, d: int, level: int) -> Reach:
        tap, at = Tap(f"tap{level}_{d}", self.taps, level), Tap(f"at{level}_{d}", self.size, level)
        if self.adaptive:
            end = floor_div((o + 1) * self.size + self.out - 1, self.out)
            even = self.size.divide(self.out) is not None
            return Reach(tap, at, floor_div(o * self.size, self.out), 1, end, not even)
        if self.transposed:
            return Reach(tap, at, o + self.padding, -self.dilation, self.size, True, self.stride)
        start = o * self.stride - self.padding
        return Reach(tap, at, start, self.dilation, self.size, not self._inside())

    def _inside(self) -> bool:
        """Whether every tap of every window lies in the operand."""
        if self.padding or self.taps.constant is None:
            return False
        if self.out.constant is None or self.size.constant is None:
            return True  # without padding, floor division leaves no tap outside
        return (self.out.constant - 1) * self.stride + self.dilation * (self.taps.constant - 1) < self.size.constant

    @property
    def overlaps(self) -> bool:
        """Whether a value of the operand is in several windows."""
        return self.adaptive or self.transposed or self.stride < self.dilation * (self.taps.hint() - 1) + 1


@dataclass(frozen=True)
class UnevenAxis(Axis):
    """One dimension whose windows have ends of their own at each place, which `ends` works out."""

    def ends(self, ctx: Context, o: Poly) -> tuple[Poly, Poly]:
        """The first element that counts, and the one after the last."""
        raise NotImplementedError

    def reach(self, ctx: Context, o: Poly, d: int, level: int) -> Reach:
        tap, at = Tap(f"tap{level}_{d}", self.taps, level), Tap(f"at{level}_{d}", self.size, level)
        first, last = self.ends(ctx, o)
        return Reach(tap, at, first, 1, last, True)

    @property
    def overlaps(self) -> bool:
        return True


def window_tensor(
    imp: Importer,
    shape: Sequence[Poly],
    dtype: str,
    kind: str,
    axes: Sequence[Axis],
    body: Callable[[Context, Index, tuple[Var, ...], tuple[Var, ...], Guard], Expr],
    inputs: Sequence[Tensor],
    channels: int = 1,
) -> Tensor:
    """The result of `kind` over the windows at its last dimensions.

    body: (context, index, taps, places, guard) -> the value of one tap; the first tap is the channel if there are
    several. For argmax the result is the place in the operand's last dimensions, as one number.
    """

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        outer = ctx.within
        level = 1 + max((a.level for p in index for a in p.atoms() if isinstance(a, Tap)), default=0)
        taps = outer.taps * channels * prod(a.taps.hint() for a in axes)
        nested = level > 1 or outer.taps > 1
        if ctx.rows or (nested and (taps > FUSED_TAPS or not outer.once)):
            raise Cut(result)
        spot = index[len(index) - len(axes) :]
        reaches = tuple(a.reach(ctx, o, d, level) for d, (a, o) in enumerate(zip(axes, spot, strict=True)))
        free = (Tap(f"channel{level}", Poly.of(channels), level),) if channels > 1 else ()
        ctx.within = Within(taps, outer.once and not any(a.overlaps for a in axes))
        places = tuple(r.at for r in reaches)
        value = body(ctx, index, (*free, *(r.tap for r in reaches)), places, guard)
        ctx.within = outer
        flat = None
        if kind == "argmax":
            flat = linear(tuple(Poly.of(p) for p in places), tuple(a.size for a in axes))
        expr = ctx.builder.window(Window(kind, free, reaches, flat), value, computing(dtype))
        ctx.windows[expr.uid] = result
        return expr

    result = imp.tensor(shape, dtype, at, *inputs)
    result.name = "window"
    return result


@dataclass(frozen=True)
class Stretch:
    """A window over part of a line: its places are those from `first` up to `last`, which data gives.

    size: of the line. kind: sum or max.
    """

    first: Expr
    last: Expr
    size: Poly
    kind: str


def stretched(ctx: Context, result: Tensor, stretch: Stretch, body: Callable[[Poly], Expr]) -> Expr:
    """`body` at every place of a stretch, joined. result: the tensor that this is a value of."""
    outer = ctx.within
    if ctx.rows or outer.taps > 1:
        raise Cut(result)
    tap, at = Tap("tap1_0", stretch.size, 1), Tap("at1_0", stretch.size, 1)
    start, end = (Poly.of(Value(e, stretch.size + 1)) for e in (stretch.first, stretch.last))
    ctx.within = Within(FUSED_TAPS + 1, False)  # what is a window itself is in memory before
    value = body(Poly.of(at))
    ctx.within = outer
    reach = Reach(tap, at, start, 1, end, checked=True, stretches=True)
    expr = ctx.builder.window(Window(stretch.kind, (), (reach,)), value, REAL)
    ctx.windows[expr.uid] = result
    return expr


def _several(value: Any, rank: int) -> list[int]:
    """One number for each dimension."""
    given = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (given * rank if len(given) == 1 else given)]


def _steps(rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[tuple[int, int, int, int]]:
    """(taps, stride, padding, dilation) of each dimension's windows; no stride means windows side by side."""
    kernels = _several(kernel, rank)
    strides = _several(stride, rank) if stride else kernels
    return list(zip(kernels, strides, _several(padding, rank), _several(dilation, rank), strict=True))


def _pool_axes(
    imp: Importer, meta: Meta, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[Axis]:
    rank, axes = _rank(imp.operator), []
    for d, (k, s, p, e) in enumerate(_steps(rank, kernel, stride, padding, dilation)):
        size = x.shape[d - rank]
        if ceil_mode and size.constant is None:
            imp.fix(size)  # whether the last window begins in the padding depends on the size
        out = imp.derived(size, 2 * p - e * (k - 1) - 1 + s, s)
        if ceil_mode:
            value = imp.node.meta["val"]
            out = Poly.of(int((value[0] if isinstance(value, (tuple, list)) else value).shape[d - rank]))
        axes.append(Axis(size, out, Poly.of(k), s, p, e))
    return axes


def _rank(operator: str) -> int:
    return next(n for n in (3, 2, 1) if f"{n}d" in operator)


def _at(ctx: Context, x: Tensor, index: Index, places: tuple[Var, ...], guard: Guard) -> Expr:
    lead = index[: len(index) - len(places)]
    return ctx.value(x, (*lead, *(Poly.of(p) for p in places)), guard)


def _max_pool(imp: Importer, meta: Meta, x: Tensor, axes: list[Axis]) -> tuple[Tensor, Tensor]:
    shape = (*x.shape[: len(x.shape) - len(axes)], *(a.out for a in axes))

    def body(ctx: Context, index: Index, taps: tuple[Var, ...], places: tuple[Var, ...], guard: Guard) -> Expr:
        return cast(ctx, _at(ctx, x, index, places, guard), computing(x.dtype))

    values = window_tensor(imp, shape, x.dtype, "max", axes, body, [x])
    indices = window_tensor(imp, shape, "int64", "argmax", axes, body, [x])
    return values, indices


@handles("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool_with_indices(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """NaN is the maximum, as torch has it; the index is that of the first of equals, of the last NaN."""
    return _max_pool(imp, meta, x, _pool_axes(imp, meta, x, kernel, stride, padding, dilation, ceil_mode))


@handles("adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(imp: Importer, meta: Meta, x: Tensor, size: Any) -> tuple[Tensor, Tensor]:
    return _max_pool(imp, meta, x, _adaptive_axes(imp, meta, x))


def _adaptive_axes(imp: Importer, meta: Meta, x: Tensor) -> list[Axis]:
    """Windows that divide the operand evenly are like any other; else each has its own first and last tap."""
    rank, axes = _rank(imp.operator), []
    value = imp.node.meta["val"]
    wanted = tuple(int(n) for n in (value[0] if isinstance(value, (tuple, list)) else value).shape)
    for d in range(rank):
        size, out = x.shape[d - rank], wanted[d - rank]
        if size.hint() == out:
            imp.guessed = True
            axes.append(Axis(size, size, Poly.of(1)))
            continue
        imp.fix(size)
        if size.hint() % out == 0:
            axes.append(Axis(size, Poly.of(out), Poly.of(size.hint() // out), size.hint() // out))
            continue
        widths = {-(-(o + 1) * size.hint() // out) - o * size.hint() // out for o in range(out)}
        axes.append(Axis(size, Poly.of(out), Poly.of(max(widths)), adaptive=True))
    return axes


@handles("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    axes = _pool_axes(imp, meta, x, kernel, stride, padding, 1, ceil_mode)
    if _whole(imp, axes) and divisor_override is None:
        return HANDLERS["mean"](imp, meta, x, list(range(-len(axes), 0)), True)
    return _average(imp, meta, x, axes, count_include_pad, divisor_override)


def _whole(imp: Importer, axes: list[Axis]) -> bool:
    """Whether the one window is all there is: a reduction."""
    if any(a.padding or a.dilation > 1 or a.taps.hint() != a.size.hint() for a in axes):
        return False
    for a in axes:
        imp.fix(a.size)
    return prod(a.taps.hint() for a in axes) > 1


@handles("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def _adaptive_avg_pool(imp: Importer, meta: Meta, x: Tensor, size: Any) -> Tensor:
    return _average(imp, meta, x, _adaptive_axes(imp, meta, x), False, None)


def _average(
    imp: Importer, meta: Meta, x: Tensor, axes: list[Axis], count_include_pad: bool, override: int | None
) -> Tensor:
    """The sum over a window divided by how many elements it counts: those of the padding too, where torch does."""
    shape = (*x.shape[: len(x.shape) - len(axes)], *(a.out for a in axes))

    def body(ctx: Context, index: Index, taps: tuple[Var, ...], places: tuple[Var, ...], guard: Guard) -> Expr:
        return cast(ctx, _at(ctx, x, index, places, guard), REAL)

    total = window_tensor(imp, shape, meta.dtype, "sum", axes, body, [x])

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        value = ctx.value(total, index, guard)
        if override is not None:
            return ctx.builder.op("mul", value, ctx.builder.const(1.0 / override, REAL), dtype=REAL)
        spot = index[len(index) - len(axes) :]
        counts = [_counted(ctx, a, o, count_include_pad) for a, o in zip(axes, spot, strict=True)]
        fixed = prod(int(c.value or 0) for c in counts if c.op == "const")
        moving = [c for c in counts if c.op != "const"]
        if not moving:
            return ctx.builder.op("mul", value, ctx.builder.const(1.0 / fixed, REAL), dtype=REAL)
        whole = ctx.builder.const(fixed, "int64")
        for c in moving:
            whole = ctx.builder.op("mul", whole, c, dtype="int64")
        return ctx.builder.op("div", value, ctx.builder.cast(whole, REAL), dtype=REAL)

    return imp.tensor(shape, meta.dtype, at, total)


def _counted(ctx: Context, a: Axis, o: Poly, with_padding: bool) -> Expr:
    """How many elements of one dimension a window counts."""
    b = ctx.builder

    def lesser(x: Poly, y: Poly) -> Expr:
        u, v = b.index(x), b.index(y)
        return b.op("where", b.op("lt", u, v, dtype="bool"), u, v, dtype="int64")

    if a.adaptive:
        start = floor_div(o * a.size, a.out)
        return b.op("sub", b.index(floor_div((o + 1) * a.size + a.out - 1, a.out)), b.index(start), dtype="int64")
    start, end = o * a.stride - a.padding, o * a.stride - a.padding + a.taps
    if with_padding:
        last = (a.out.hint() - 1) * a.stride - a.padding + a.taps.hint()
        if a.size.constant is None or last <= a.size.hint() + a.padding:
            return b.index(a.taps)
        return b.op("sub", lesser(end, a.size + a.padding), b.index(start), dtype="int64")
    if not a.padding and a._inside():
        return b.index(a.taps)
    zero = b.const(0, "int64")
    first = b.index(start)
    if a.padding:
        first = b.op("where", b.op("lt", first, zero, dtype="bool"), zero, first, dtype="int64")
    return b.op("sub", lesser(end, a.size), first, dtype="int64")


@handles("convolution")
def _convolution(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Sums of few terms; what is bound by arithmetic is a library's or another family's."""
    rank = len(weight.shape) - 2
    inner = weight.shape[1].hint() if not transposed else weight.shape[0].hint() // groups
    taps = prod(s.hint() for s in weight.shape[2:])
    large = inner * taps > CHANNEL_TAPS and not (inner == 1 and taps <= DEPTHWISE_TAPS)
    if imp.switches.library or large:
        arguments = (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return library_convolution(imp, meta, *arguments)
    for size in weight.shape:
        imp.fix(size)
    outer = meta.shape[-rank - 1]
    per_group = outer // groups
    strides, paddings, dilations = (_several(v, rank) for v in (stride, padding, dilation))
    axes = []
    for d in range(rank):
        size, k = x.shape[d - rank], weight.shape[d - rank].hint()
        if transposed:
            extra = _several(output_padding, rank)[d]
            if size.constant is None:
                imp.fix(size)
            out = (size.hint() - 1) * strides[d] - 2 * paddings[d] + dilations[d] * (k - 1) + extra + 1
            axes.append(Axis(size, Poly.of(out), Poly.of(k), strides[d], paddings[d], dilations[d], transposed=True))
            continue
        shift = 2 * paddings[d] - dilations[d] * (k - 1) - 1
        out_size = imp.derived(size, shift + strides[d], strides[d])
        axes.append(Axis(size, out_size, Poly.of(k), strides[d], paddings[d], dilations[d]))
    shape = (*x.shape[: -rank - 1], Poly.of(outer), *(a.out for a in axes))
    imp.equal(x.shape[-rank - 1], Poly.of(inner * groups))

    def body(ctx: Context, index: Index, taps: tuple[Var, ...], places: tuple[Var, ...], guard: Guard) -> Expr:
        channel, own = index[-rank - 1], taps[-rank:]
        part = Poly.of(taps[0]) if inner > 1 else Poly()
        group = floor_div(channel, Poly.of(per_group)) if groups > 1 else Poly()
        source = (*index[: -rank - 1], group * inner + part, *(Poly.of(p) for p in places))
        spots = tuple(Poly.of(t) for t in own)
        if transposed:
            within = channel - group * per_group
            at = (group * inner + part, within, *spots)
        else:
            at = (channel, part, *spots)
        value = cast(ctx, ctx.value(x, source, guard), REAL)
        return ctx.builder.op("mul", value, cast(ctx, ctx.value(weight, at, guard), REAL), dtype=REAL)

    inputs = [x, weight]
    result = window_tensor(imp, shape, meta.dtype, "sum", axes, body, inputs, inner)
    if bias is None:
        return result

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        added = cast(ctx, ctx.value(bias, (index[-rank - 1],), guard), REAL)
        return ctx.builder.op("add", ctx.value(result, index, guard), added, dtype=REAL)

    return imp.tensor(shape, meta.dtype, at, result, bias)


__all__ = ["Axis", "window_tensor"]
