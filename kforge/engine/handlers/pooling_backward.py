"""Handlers of what pooling hands back: each element gathers from the windows that it was in, so that no two write to
one place and nothing is added in an order of chance."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from kforge.engine.graph.importer import Importer, Meta, cast, handles
from kforge.engine.graph.ir import REAL, Expr
from kforge.engine.graph.symbols import Poly, Var, floor_div
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor, linear
from kforge.engine.handlers.windows import Axis, _counted, _rank, _steps, window_tensor

Given = Callable[[Context, Index, Index, Guard], Expr]
"""(context, index of the element, index of the window, guard) -> what the element gets from that window."""


def _axes(
    imp: Importer, grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[Axis]:
    """The windows of the forward, whose number is that of the upstream gradient's elements."""
    rank, axes = _rank(imp.operator), []
    for d, (k, s, p, e) in enumerate(_steps(rank, kernel, stride, padding, dilation)):
        size, out = x.shape[d - rank], grad.shape[d - rank]
        if ceil_mode:
            imp.fix(size)
            imp.fix(out)
        else:
            out = imp.equal(out, imp.derived(size, 2 * p - e * (k - 1) - 1 + s, s))
        axes.append(Axis(size, out, Poly.of(k), s, p, e))
    return axes


def _even_axes(imp: Importer, grad: Tensor, x: Tensor) -> list[Axis]:
    """Adaptive windows that divide the operand evenly."""
    rank, axes = _rank(imp.operator), []
    for d in range(rank):
        size, out = x.shape[d - rank], grad.shape[d - rank]
        imp.fix(size)
        imp.fix(out)
        if size.hint() % out.hint():
            raise imp.reject(f"{size.hint()} elements in {out.hint()} adaptive windows")
        width = size.hint() // out.hint()
        axes.append(Axis(size, out, Poly.of(width), width))
    return axes


def _gathered(
    imp: Importer, meta: Meta, grad: Tensor, x: Tensor, axes: list[Axis], given: Given, *inputs: Tensor
) -> Tensor:
    """For every element of x the sum of what it gets from the windows that it was in."""
    for g, s in zip(grad.shape[: -len(axes)], x.shape[: -len(axes)], strict=True):
        imp.equal(g, s)
    lead = len(x.shape) - len(axes)
    if all(a.dilation == 1 and a.stride >= a.taps.hint() for a in axes):  # one window, or none

        def own(ctx: Context, index: Index, guard: Guard) -> Expr:
            b, places, inside = ctx.builder, [], guard
            for a, o in zip(axes, index[lead:], strict=True):
                place = floor_div(o + a.padding, Poly.of(a.stride))
                places.append(place)
                tests = []
                if a.size.constant is None or a.size.hint() + a.padding > a.out.hint() * a.stride:
                    tests.append(b.op("lt", b.index(place), b.index(a.out), dtype="bool"))
                if a.stride > a.taps.hint():
                    step = b.index(o + a.padding - place * a.stride)
                    tests.append(b.op("lt", step, b.index(a.taps), dtype="bool"))
                for test in tests:
                    inside = test if inside is None else b.op("and", inside, test, dtype="bool")
            value = given(ctx, index, (*index[:lead], *places), inside)
            if inside is None or inside is guard:
                return value
            return b.op("where", inside, value, b.const(0.0, REAL), dtype=REAL)

        return imp.tensor(x.shape, meta.dtype, own, grad, *inputs)
    back = [Axis(a.out, a.size, a.taps, a.stride, a.padding, a.dilation, transposed=True) for a in axes]

    def body(ctx: Context, index: Index, taps: tuple[Var, ...], places: tuple[Var, ...], guard: Guard) -> Expr:
        return given(ctx, index, (*index[:lead], *map(Poly.of, places)), guard)

    return window_tensor(imp, x.shape, meta.dtype, "sum", back, body, [grad, *inputs])


def _chosen(imp: Importer, grad: Tensor, x: Tensor, indices: Tensor, rank: int) -> Given:
    """A maximum's gradient goes to the element that was chosen."""

    def given(ctx: Context, index: Index, window: Index, guard: Guard) -> Expr:
        b = ctx.builder
        here = b.index(linear(index[-rank:], x.shape[-rank:]))
        mine = b.op("eq", ctx.value(indices, window, guard), here, dtype="bool")
        value = cast(ctx, ctx.value(grad, window, guard), REAL)
        return b.op("where", mine, value, b.const(0.0, REAL), dtype=REAL)

    return given


@handles("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(
    imp: Importer,
    meta: Meta,
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    axes = _axes(imp, grad, x, kernel, stride, padding, dilation, ceil_mode)
    return _gathered(imp, meta, grad, x, axes, _chosen(imp, grad, x, indices, len(axes)), indices)


@handles("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def _adaptive_max_pool_backward(imp: Importer, meta: Meta, grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    axes = _even_axes(imp, grad, x)
    return _gathered(imp, meta, grad, x, axes, _chosen(imp, grad, x, indices, len(axes)), indices)


def _shared(imp: Importer, grad: Tensor, axes: list[Axis], with_padding: bool, override: int | None) -> Given:
    """A mean's gradient goes to all elements alike."""

    def given(ctx: Context, index: Index, window: Index, guard: Guard) -> Expr:
        b, value = ctx.builder, cast(ctx, ctx.value(grad, window, guard), REAL)
        if override is not None:
            return b.op("div", value, b.const(float(override), REAL), dtype=REAL)
        counts = [_counted(ctx, a, o, with_padding) for a, o in zip(axes, window[-len(axes) :], strict=True)]
        fixed = prod(int(c.value or 0) for c in counts if c.op == "const")
        whole = b.const(fixed, "int64")
        for c in (c for c in counts if c.op != "const"):
            whole = b.op("mul", whole, c, dtype="int64")
        if whole.op == "const":
            return b.op("div", value, b.const(float(fixed), REAL), dtype=REAL)
        return b.op("div", value, b.cast(whole, REAL), dtype=REAL)

    return given


@handles("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool_backward(
    imp: Importer,
    meta: Meta,
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    axes = _axes(imp, grad, x, kernel, stride, padding, 1, ceil_mode)
    return _gathered(imp, meta, grad, x, axes, _shared(imp, grad, axes, count_include_pad, divisor_override))


@handles("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(imp: Importer, meta: Meta, grad: Tensor, x: Tensor) -> Tensor:
    axes = _even_axes(imp, grad, x)
    return _gathered(imp, meta, grad, x, axes, _shared(imp, grad, axes, False, None))
