"""Convolutions as values that a kernel of ours computes (families/convolution.py), their operands in halves.

The step before is calls/implicit.py; scales, bias and what follows element by element are computed on the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod

from kforge.engine.calls import framed, implicit
from kforge.engine.calls.vendor import VendorCall, vendor_tensor
from kforge.engine.graph.importer import Importer, Meta
from kforge.engine.graph.ir import REAL, Expr, Window
from kforge.engine.graph.symbols import Poly, Tap, product
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor, linear, unflatten
from kforge.engine.handlers.tensorcores import _loops as loops_alone
from kforge.engine.handlers.tensorcores import own_product

CONVOLUTION = "convolution"
"""The kind of such a window."""
LEAST_FILTERS = 2


@dataclass(frozen=True)
class Walk(Window):
    """A walk over taps and channels in a frame, all of it one loop."""

    frame: implicit.Frame | None = None


def implicit_convolution(imp: Importer, call: VendorCall, shape: tuple[Poly, ...]) -> Tensor | None:
    """A convolution of one group by halves and a kernel of ours, where that pays."""
    x, weight = call.operands[:2]
    rank = len(shape) - 2
    values = sum(prod(s.hint() for s in t.shape) for t in (x, weight))
    channels = weight.shape[1].hint()
    if not _plain(call, rank) or shape[1].hint() < LEAST_FILTERS:
        return None
    frame = _frame_of(call, rank, channels)
    if x.dtype != "float32" or len(call.operands) > 2 or not implicit.pays(call.operations, frame, values):
        return None
    for size in weight.shape[1:]:
        imp.fix(size)
    call.scheme, call.labels, call.facts = implicit.IMPLICIT, implicit.RESULTS, {"frame": frame}
    name, origin = imp.node.name, imp.origin
    whole = vendor_tensor(shape, "float32", call, name, origin)
    depth = Poly.of(frame.depth)
    around = tuple(s + Poly.of(e) for s, e in zip(shape[2:], frame.deep, strict=True))
    # each place of the frame is as if it had what all taps meet from there on
    images = vendor_tensor((shape[0], *around, depth), "float16", call, name, origin)
    filters = vendor_tensor((shape[1], depth), "float16", call, name, origin)
    units, marks = (vendor_tensor((size,), "float32", call, name, origin) for size in (shape[1], shape[0]))
    sums = _walk(imp, shape, "float32", images, filters, Walk(CONVOLUTION, (Tap("depth", depth, 1),), (), None, frame))

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        value, zero = ctx.value(sums, index, guard), b.const(0.0, REAL)
        unit, mark = ctx.value(units, index[1:2], guard), ctx.value(marks, index[:1], guard)
        plain = b.op("or", b.op("lt", mark, zero, dtype="bool"), b.op("lt", unit, zero, dtype="bool"), dtype="bool")
        marked = plain if guard is None else b.op("and", guard, plain, dtype="bool")
        scaled = b.op("mul", value, unit, dtype=REAL)
        return b.op("where", plain, ctx.value(whole, index, marked), scaled, dtype=REAL)

    return imp.tensor(shape, "float32", at, sums, whole, units, marks)


def narrow_convolution(imp: Importer, meta: Meta, call: VendorCall) -> Tensor | None:
    """A convolution in 16 bits of one group by a kernel of ours, where that pays; as a product where windows are single
    places or lie side by side."""
    x, weight = call.operands
    rank, channels = len(x.shape) - 2, weight.shape[1].hint()
    if not _plain(call, rank) or weight.shape[0].hint() < LEAST_FILTERS:
        return None
    frame = _frame_of(call, rank, channels)
    for size in weight.shape[1:]:
        imp.fix(size)
    if not call.keywords and frame.taps == 1:
        return _of_places(imp, meta, x, weight)
    if call.keywords.keys() == {"stride"} and frame.stride == frame.kernel:
        return _of_patches(imp, meta, x, weight, frame)
    if not framed.pays(call.operations, frame, sum(prod(s.hint() for s in t.shape) for t in (x, weight))):
        return None
    name, dtype, depth = imp.node.name, meta.dtype, Poly.of(frame.depth)
    steps = zip(x.shape[2:], frame.kernel, frame.stride, frame.padding, frame.dilation, strict=True)
    sizes = [imp.derived(size, 2 * p - d * (k - 1) - 1 + s, s) for size, k, s, p, d in steps]
    shape = (x.shape[0], weight.shape[0], *sizes)
    call.scheme, call.labels, call.facts = framed.FRAMED, framed.RESULTS, {"frame": frame, "dense": True}
    around = tuple(s + Poly.of(e) for s, e in zip(shape[2:], frame.deep, strict=True))
    images = vendor_tensor((shape[0], *around, depth), dtype, call, name, imp.origin)
    filters = vendor_tensor((shape[1], depth), dtype, call, name, imp.origin)
    return _walk(imp, shape, dtype, images, filters, Walk(CONVOLUTION, (Tap("depth", depth, 1),), (), None, frame))


def _of_places(imp: Importer, meta: Meta, x: Tensor, weight: Tensor) -> Tensor:
    """The filters as a matrix times the images as they lie, channels by places."""
    images, channels, sizes = *x.shape[:2], x.shape[2:]
    filters = weight.shape[0]
    left = imp.view(weight, (images, filters, channels), lambda i: (*i[1:], *(Poly() for _ in sizes)))
    sums = own_product(imp, meta, left, _merged(imp, x, 3), spread=True)
    shape = (images, filters, *sizes)
    return imp.view(sums, shape, lambda i: (*i[:2], linear(i[2:], sizes)))


def _merged(imp: Importer, x: Tensor, rank: int) -> Tensor:
    """x with its last dimensions as one, so that there are `rank`; two at a time, as indices are simplified."""
    while len(x.shape) > rank:
        two = x.shape[-2:]
        x = imp.view(x, (*x.shape[:-2], product(two)), partial(_last_apart, two))
    return x


def _last_apart(sizes: tuple[Poly, ...], index: Index) -> Index:
    return (*index[:-1], *unflatten(index[-1], sizes))


def _of_patches(imp: Importer, meta: Meta, x: Tensor, weight: Tensor, frame: implicit.Frame) -> Tensor:
    """The windows, which a kernel writes one below the other, times the filters as they lie."""
    sizes = tuple(imp.derived(size, 0, k) for size, k in zip(x.shape[2:], frame.kernel, strict=True))
    rows, window = (x.shape[0], *sizes), weight.shape[1:]

    def back(i: Index) -> Index:
        (image, *places), (channel, *taps) = unflatten(i[0], rows), unflatten(i[1], window)
        return (image, channel, *(o * s + t for o, s, t in zip(places, frame.stride, taps, strict=True)))

    patches = imp.view(x, (product(rows), product(window)), back)
    patches.name = f"{x.name or 'images'}_patches"
    lines = _merged(imp, weight, 2)
    filters = imp.view(lines, lines.shape[::-1], lambda i: i[::-1])
    sums = own_product(imp, meta, patches, filters)
    return imp.view(sums, (x.shape[0], weight.shape[0], *sizes), lambda i: (linear((i[0], *i[2:]), rows), i[1]))


def _plain(call: VendorCall, rank: int) -> bool:
    """Whether a convolution is of one group, and no transposed one."""
    return not call.keywords.keys() - {"stride", "padding", "dilation"} and call.operator == f"conv{rank}d"


def _frame_of(call: VendorCall, rank: int, channels: int) -> implicit.Frame:
    defaults = {"stride": 1, "padding": 0, "dilation": 1}
    stride, padding, dilation = (_each(call.keywords.get(key, default), rank) for key, default in defaults.items())
    kernel = tuple(s.hint() for s in call.operands[1].shape[2:])
    frame = implicit.Frame(kernel, stride, padding, dilation, channels, 0)
    # where lines of the result are whole vectors, those of the frame are, too
    return replace(frame, wider=-(-frame.reach[-1] // 4) * 4)


def _walk(imp: Importer, shape: tuple[Poly, ...], dtype: str, images: Tensor, filters: Tensor, window: Walk) -> Tensor:
    """The sums themselves; a kernel of rows, and one of other loops, finds them in memory."""

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        image, filter, *places = index
        alone = all(len(i.terms) <= 1 for i in index)
        if ctx.rows or guard is not None or not alone or not all(map(loops_alone, index)) or ctx.windows:
            raise Cut(sums)
        k = Poly.of(window.free[0])
        left, right = ctx.value(filters, (filter, k)), ctx.value(images, (image, *places, k))
        expr = ctx.builder.window(window, ctx.builder.op("mul", left, right, dtype=REAL), REAL)
        ctx.windows[expr.uid] = sums
        return expr

    sums = imp.tensor(shape, dtype, at, images, filters)
    sums.name = imp.node.name
    return sums


def _each(value: object, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank  # type: ignore[return-value]
