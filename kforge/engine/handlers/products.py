"""Handlers of operators that a library computes: matrix products and convolutions, their bias apart.

In single precision the bias is part of the kernel that follows. In 16-bit types it stays in the library's call: its
rounding after the sum would otherwise be one more than the reference has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from kforge.engine.calls import halved
from kforge.engine.calls.precision import RESULTS, pays
from kforge.engine.calls.vendor import VendorCall, vendor_tensor
from kforge.engine.graph.importer import Importer, Meta, handles
from kforge.engine.graph.ir import REAL, Expr
from kforge.engine.graph.linear import diagonal_product
from kforge.engine.graph.symbols import Poly, Size
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.attention import attention
from kforge.engine.handlers.narrow import integer_product
from kforge.engine.handlers.operators import POINTWISE
from kforge.engine.handlers.skinny import skinny
from kforge.engine.handlers.tensorcores import own_product

HALVES = ("float16", "bfloat16")
FLOATING = ("float32", "float64", *HALVES)


def _checked(imp: Importer, meta: Meta, *operands: Tensor) -> None:
    if meta.dtype not in FLOATING or any(t.dtype != meta.dtype for t in operands):
        raise imp.reject(f"operands of {', '.join(t.dtype for t in operands)}")


@handles("mm")
def _mm(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor:
    for rewrite in (skinny, diagonal_product):
        if (better := rewrite(imp, meta, a, b)) is not None:
            return better
    for whole in (attention, integer_product):
        if (found := whole(imp, meta, a, b)) is not None:
            return found
    _checked(imp, meta, a, b)
    imp.equal(a.shape[1], b.shape[0])
    shape = (a.shape[0], b.shape[1])
    call = VendorCall("mm", (a, b), operations=2 * prod(meta.shape) * a.shape[1].hint())
    if imp.own and meta.dtype in HALVES:
        product = own_product(imp, meta, a, b)
        product.factors = (a, b)
        return product
    pairs = imp.scheme and meta.dtype == "float32" and pays(imp.scheme, *(s.hint() for s in (*shape, a.shape[1])))
    if pairs:
        result = _by_scheme(imp, call, shape)
    else:
        result = vendor_tensor(shape, meta.dtype, call, imp.node.name, imp.origin)
    result.factors = (a, b)
    return result


def _by_scheme(imp: Importer, call: VendorCall, shape: tuple[Poly, Poly]) -> Tensor:
    """Sums of scaled operands; what follows takes the scales away. Rows of sums are padded to whole vectors."""
    call.scheme, call.labels, name, width = imp.scheme, RESULTS, imp.node.name, shape[1]
    if width.hint() % 8:
        padded = -(-width.hint() // 8) * 8
        imp.sources.setdefault(Size(f"{name}_1", padded), (name, 1))
        width = imp.size(f"{name}_1", padded)
    sums = vendor_tensor((shape[0], width), "float32", call, name, imp.origin)
    rows, columns = (vendor_tensor((size,), "float32", call, name, imp.origin) for size in shape)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        value, row = ctx.value(sums, index, guard), ctx.value(rows, index[:1], guard)
        column, zero = ctx.value(columns, index[1:], guard), b.const(0.0, REAL)
        plain = b.op("or", b.op("lt", row, zero, dtype="bool"), b.op("lt", column, zero, dtype="bool"), dtype="bool")
        scaled = b.op("mul", b.op("mul", value, row, dtype=REAL), column, dtype=REAL)
        return b.op("where", plain, value, scaled, dtype=REAL)

    return imp.tensor(shape, "float32", at, sums, rows, columns)


@handles("bmm")
def _bmm(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor:
    for rewrite in (skinny, diagonal_product):
        if (better := rewrite(imp, meta, a, b)) is not None:
            return better
    if (whole := attention(imp, meta, a, b)) is not None:
        return whole
    _checked(imp, meta, a, b)
    imp.equal(a.shape[2], b.shape[1])
    shape = (imp.equal(a.shape[0], b.shape[0]), a.shape[1], b.shape[2])
    if imp.own and meta.dtype in HALVES:
        return own_product(imp, meta, a, b)
    call = VendorCall("bmm", (a, b), operations=2 * prod(meta.shape) * a.shape[2].hint())
    return vendor_tensor(shape, meta.dtype, call, imp.node.name, imp.origin)


@handles("addmm")
def _addmm(imp: Importer, meta: Meta, bias: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    if meta.dtype in HALVES and len(bias.shape) == 1 and (beta, alpha) == (1, 1):
        if imp.own:  # the sum is rounded once, with all that follows
            return imp.map(POINTWISE["add"], _mm(imp, meta, a, b), bias, dtype=meta.dtype)
        if (thin := skinny(imp, meta, a, b)) is not None:  # added before the one rounding, as in the library's call
            return imp.map(POINTWISE["add"], thin, bias, dtype=meta.dtype)
        _checked(imp, meta, bias, a, b)
        imp.equal(a.shape[1], b.shape[0])
        imp.equal(bias.shape[0], b.shape[1])
        call = VendorCall("addmm", (bias, a, b), operations=2 * prod(meta.shape) * a.shape[1].hint())
        return vendor_tensor((a.shape[0], b.shape[1]), meta.dtype, call, imp.node.name, imp.origin)
    return _scaled_sum(imp, meta, _mm(imp, meta, a, b), bias, beta, alpha)


@handles("baddbmm")
def _baddbmm(
    imp: Importer, meta: Meta, bias: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor:
    return _scaled_sum(imp, meta, _bmm(imp, meta, a, b), bias, beta, alpha)


def _scaled_sum(imp: Importer, meta: Meta, result: Tensor, bias: Tensor, beta: float, alpha: float) -> Tensor:
    """alpha * product + beta * bias; a bias times zero is not read, NaN or not."""
    if meta.dtype in HALVES and not imp.own:
        raise imp.reject("a scaled or wide bias in 16 bits")
    if alpha != 1:
        result = imp.map(POINTWISE["mul"], result, alpha, dtype=meta.dtype)
    if beta == 0:
        return result
    if beta != 1:
        bias = imp.map(POINTWISE["mul"], bias, beta, dtype=meta.dtype)
    return imp.map(POINTWISE["add"], result, bias, dtype=meta.dtype)


def library_convolution(
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
    _checked(imp, meta, x, weight, *([bias] if bias is not None else []))
    rank = len(x.shape) - 2
    if rank not in (1, 2, 3):
        raise imp.reject(f"{rank} dimensions")
    _channels(imp, x, weight, transposed, groups)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    name = imp.node.name
    sizes = []
    for axis, hint in enumerate(meta.shape[2:], 2):
        imp.sources.setdefault(Size(f"{name}_{axis}", hint), (name, axis))
        sizes.append(imp.size(f"{name}_{axis}", hint) if hint != 1 else Poly.of(1))
    keywords: dict[str, Any] = {}
    for key, value, default in (
        ("stride", stride, 1),
        ("padding", padding, 0),
        ("output_padding", output_padding, 0),
        ("dilation", dilation, 1),
    ):
        values = list(value) * rank if len(value) == 1 else list(value)
        if any(v != default for v in values):
            keywords[key] = values[0] if len(set(values)) == 1 else tuple(values)
    if groups != 1:
        keywords["groups"] = groups
    taps = prod(s.hint() for s in weight.shape[1:])
    points = prod(s.hint() for s in x.shape) if transposed else prod(meta.shape)
    operator = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    inside = bias if bias is not None and meta.dtype in HALVES else None
    call = VendorCall(operator, (x, weight, *([inside] if inside is not None else [])), keywords, 2 * points * taps)
    shape = (x.shape[0], channels, *sizes)
    elements = prod(s.hint() for s in x.shape) + prod(s.hint() for s in weight.shape)
    if imp.halved and meta.dtype == "float32" and groups == 1 and halved.pays(call.operations, elements):
        result = _by_halves(imp, call, shape)
    elif imp.last and rank > 1 and groups == 1 and halved.worthwhile(call.operations):
        result = _channels_last(imp, call, shape, meta.dtype)
    else:
        result = vendor_tensor(shape, meta.dtype, call, name, imp.origin)
    if bias is None or inside is not None:
        return result
    along = imp.view(bias, (bias.shape[0], *[Poly.of(1)] * rank), lambda i: i[:1])
    return imp.map(POINTWISE["add"], result, along, dtype=meta.dtype)


def _channels_last(imp: Importer, call: VendorCall, shape: tuple[Poly, ...], dtype: str) -> Tensor:
    """The convolution of operands that kernels of ours write channels-last."""
    call.operands = (*(_moved(imp, t) for t in call.operands[:2]), *call.operands[2:])
    call.last = True
    result = vendor_tensor((shape[0], *shape[2:], shape[1]), dtype, call, imp.node.name, imp.origin)
    return imp.view(result, shape, lambda i: (i[0], *i[2:], i[1]))


def _moved(imp: Importer, x: Tensor) -> Tensor:
    """x (n, c, ...) as (n, ..., c)."""
    result = imp.view(x, (x.shape[0], *x.shape[2:], x.shape[1]), lambda i: (i[0], i[-1], *i[1:-1]))
    result.name = f"{x.name or 'operand'}_last"
    return result


def _by_halves(imp: Importer, call: VendorCall, shape: tuple[Poly, ...]) -> Tensor:
    """Results as halves with a unit a filter; of what halves cannot hold, those in single precision."""
    call.scheme, call.labels, name = halved.HALVED, halved.RESULTS, imp.node.name
    for size in call.operands[1].shape[2:]:
        imp.fix(size)
    call.last = len(shape) > 3
    full = vendor_tensor(shape, "float32", call, name, imp.origin)
    inner = (shape[0], *shape[2:], shape[1]) if call.last else shape
    halves = vendor_tensor(inner, "float16", call, name, imp.origin)
    units, marks = (vendor_tensor((size,), "float32", call, name, imp.origin) for size in (shape[1], shape[0]))

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        unit, mark = ctx.value(units, index[1:2], guard), ctx.value(marks, index[:1], guard)
        zero = b.const(0.0, REAL)
        plain = b.op("or", b.op("lt", mark, zero, dtype="bool"), b.op("lt", unit, zero, dtype="bool"), dtype="bool")
        whole = plain if guard is None else b.op("and", guard, plain, dtype="bool")
        place = (index[0], *index[2:], index[1]) if call.last else index
        scaled = b.op("mul", ctx.value(halves, place, guard), unit, dtype=REAL)
        return b.op("where", plain, ctx.value(full, index, whole), scaled, dtype=REAL)

    return imp.tensor(shape, "float32", at, full, halves, units, marks)


def _channels(imp: Importer, x: Tensor, weight: Tensor, transposed: bool, groups: int) -> None:
    """Channels of the input as the weight has them."""
    if transposed:
        imp.equal(x.shape[1], weight.shape[0])
    elif groups == 1:
        imp.equal(x.shape[1], weight.shape[1])
    else:
        imp.fix(x.shape[1])
        imp.fix(weight.shape[1])
