"""Handlers of operators that a library computes: matrix products and convolutions, their bias apart.

In single precision the bias is part of the kernel that follows. In 16-bit types it stays in the library's call: its
rounding after the sum would otherwise be one more than the reference has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from kforge.engine.calls import batches, converted, halved
from kforge.engine.calls.precision import RESULTS, pays
from kforge.engine.calls.vendor import VendorCall, vendor_tensor
from kforge.engine.graph.importer import Importer, Meta, handles
from kforge.engine.graph.ir import REAL, Expr
from kforge.engine.graph.linear import diagonal_product
from kforge.engine.graph.symbols import Poly, Size
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.attention import attention
from kforge.engine.handlers.chains import chain
from kforge.engine.handlers.converted import converted_product
from kforge.engine.handlers.flattened import flattened
from kforge.engine.handlers.implicit import implicit_convolution, narrow_convolution
from kforge.engine.handlers.joined import below, group_of, part_of, weights_of
from kforge.engine.handlers.narrow import integer_product
from kforge.engine.handlers.operators import POINTWISE
from kforge.engine.handlers.skinny import skinny
from kforge.engine.handlers.tensorcores import own_product
from kforge.engine.handlers.transposed import Placing, gathered
from kforge.engine.handlers.triangular import symmetric, triangular, with_nan

HALVES = ("float16", "bfloat16")
FLOATING = ("float32", "float64", *HALVES)


def _checked(imp: Importer, meta: Meta, *operands: Tensor) -> None:
    if meta.dtype not in FLOATING or any(t.dtype != meta.dtype for t in operands):
        raise imp.reject(f"operands of {', '.join(t.dtype for t in operands)}")


@handles("mm")
def _mm(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor:
    for rewrite in (chain, skinny, diagonal_product):
        if (better := rewrite(imp, meta, a, b)) is not None:
            return better
    for whole in (attention, integer_product):
        if (found := whole(imp, meta, a, b)) is not None:
            return found
    _checked(imp, meta, a, b)
    imp.equal(a.shape[1], b.shape[0])
    if (group := group_of(imp)) is not None:
        return _joined(imp, meta, group, a)
    shape = (a.shape[0], b.shape[1])
    call = VendorCall("mm", (a, b), operations=2 * prod(meta.shape) * a.shape[1].hint())
    if imp.switches.own and meta.dtype in HALVES:
        product = own_product(imp, meta, a, b)
        product.factors = (a, b)
        return product
    if imp.switches.scheme == converted.CONVERTED and (found := converted_product(imp, meta, a, b)) is not None:
        return found
    if _pays(imp, meta, shape, a.shape[1]):
        result = _by_scheme(imp, call, shape)
    else:
        banded = triangular(imp, call, meta.dtype)
        result = vendor_tensor(shape, meta.dtype, call, imp.node.name, imp.origin)
        result = with_nan(imp, call, result) if banded else result
    result = symmetric(imp, result, a, b)
    result.factors = (a, b)
    return result


def _joined(imp: Importer, meta: Meta, group: list[Any], a: Tensor) -> Tensor:
    """A product as a part of one that several are computed by; in 16 bits with the biases of all."""
    if group[0] not in imp.together:
        weights = weights_of(imp, group)
        turned = imp.view(weights, (a.shape[1], weights.shape[0]), lambda i: i[::-1])
        shape = (a.shape[0], weights.shape[0])
        work = 2 * prod(s.hint() for s in (*shape, a.shape[1]))
        biased = meta.dtype in HALVES and len(group[0].args) == 3
        bias = [below(imp, [imp.values[n.args[0]] for n in group], "biases")] if biased else []
        call = VendorCall("addmm" if biased else "mm", (*bias, a, turned), operations=work)
        if _pays(imp, meta, shape, a.shape[1]):
            imp.together[group[0]] = _by_scheme(imp, call, shape)
        else:
            imp.together[group[0]] = vendor_tensor(shape, meta.dtype, call, imp.node.name, imp.origin)
    return part_of(imp, group, imp.together[group[0]])


def _pays(imp: Importer, meta: Meta, shape: Sequence[Poly], depth: Poly) -> bool:
    """Whether a product is computed by the scheme, where there is one."""
    scheme, sizes = imp.switches.scheme, (s.hint() for s in (*shape, depth))
    return bool(scheme) and meta.dtype == "float32" and pays(scheme, *sizes)


def _by_scheme(imp: Importer, call: VendorCall, shape: tuple[Poly, ...]) -> Tensor:
    """Sums of scaled operands; what follows takes the scales away. Rows of sums are padded to whole vectors.

    Of batches columns are whole vectors, and both operands lie along the depth.
    """
    call.scheme, call.labels, name, width = imp.switches.scheme, RESULTS, imp.node.name, shape[-1]
    if width.hint() % 8:
        padded = -(-width.hint() // 8) * 8
        imp.sources.setdefault(Size(f"{name}_1", padded), (name, 1))
        width = imp.size(f"{name}_1", padded)
    sums = vendor_tensor((*shape[:-1], width), "float32", call, name, imp.origin)
    rows, columns = (vendor_tensor((*shape[:-2], size), "float32", call, name, imp.origin) for size in shape[-2:])

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        value, row = ctx.value(sums, index, guard), ctx.value(rows, index[:-1], guard)
        column, zero = ctx.value(columns, (*index[:-2], index[-1]), guard), b.const(0.0, REAL)
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
    if imp.switches.own and meta.dtype in HALVES:
        return own_product(imp, meta, a, b)
    call = VendorCall("bmm", (a, b), operations=2 * prod(meta.shape) * a.shape[2].hint())
    sizes = (*(s.hint() for s in shape), a.shape[2].hint())
    if imp.switches.scheme and meta.dtype == "float32" and batches.pays(imp.switches.scheme, *sizes):
        turned = imp.view(b, (b.shape[0], b.shape[2], b.shape[1]), lambda i: (i[0], i[2], i[1]))
        turned.name = f"{b.name or 'right'}_turned"
        call.operands, call.facts = (a, turned), {"dense": True}
        return _by_scheme(imp, call, shape)
    return vendor_tensor(shape, meta.dtype, call, imp.node.name, imp.origin)


@handles("addmm")
def _addmm(imp: Importer, meta: Meta, bias: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    if meta.dtype in HALVES and len(bias.shape) == 1 and (beta, alpha) == (1, 1):
        if imp.switches.own:  # the sum is rounded once, with all that follows
            return imp.map(POINTWISE["add"], _mm(imp, meta, a, b), bias, dtype=meta.dtype)
        if (thin := skinny(imp, meta, a, b)) is not None:  # added before the one rounding, as in the library's call
            return imp.map(POINTWISE["add"], thin, bias, dtype=meta.dtype)
        _checked(imp, meta, bias, a, b)
        imp.equal(a.shape[1], b.shape[0])
        imp.equal(bias.shape[0], b.shape[1])
        if (group := group_of(imp)) is not None:
            return _joined(imp, meta, group, a)
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
    if meta.dtype in HALVES and not imp.switches.own:
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
        values = _several(value, rank)
        if any(v != default for v in values):
            keywords[key] = values[0] if len(set(values)) == 1 else values
    if groups != 1:
        keywords["groups"] = groups
    taps = prod(s.hint() for s in weight.shape[1:])
    points = prod(s.hint() for s in x.shape) if transposed else prod(meta.shape)
    operator = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    result = None
    if imp.switches.implicit and meta.dtype in HALVES:
        own = VendorCall(operator, (x, weight), keywords, 2 * points * taps)
        result = narrow_convolution(imp, meta, own)
    inside = bias if bias is not None and meta.dtype in HALVES and result is None else None
    call = VendorCall(operator, (x, weight, *([inside] if inside is not None else [])), keywords, 2 * points * taps)
    if imp.switches.gathered and result is None:
        steps, pads, gaps, extra = (_several(v, rank) for v in (stride, padding, dilation, output_padding))
        how, convolve = Placing(steps, pads, gaps, extra, groups), partial(_convolved, imp)
        if transposed:
            result = gathered(imp, x, weight, call.operands[2:], how, meta.dtype, convolve)
        else:
            result = flattened(imp, call, how, convolve)
    if result is None:
        result = _convolved(imp, call, (x.shape[0], channels, *sizes))
    if bias is None or inside is not None:
        return result
    along = imp.view(bias, (bias.shape[0], *[Poly.of(1)] * rank), lambda i: i[:1])
    return imp.map(POINTWISE["add"], result, along, dtype=meta.dtype)


def _several(values: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def _convolved(imp: Importer, call: VendorCall, shape: tuple[Poly, ...]) -> Tensor:
    """The result of a convolution, computed as the plan has it."""
    x, weight = call.operands[:2]
    single, dtype = call.keywords.get("groups", 1) == 1, x.dtype
    elements = sum(prod(s.hint() for s in t.shape) for t in (x, weight))
    if imp.switches.implicit and (found := implicit_convolution(imp, call, shape)) is not None:
        return found
    if imp.switches.halved and dtype == "float32" and single and halved.pays(call.operations, elements):
        return _by_halves(imp, call, shape)
    if imp.switches.last and len(shape) > 3 and single and halved.worthwhile(call.operations):
        return _channels_last(imp, call, shape, dtype)
    return vendor_tensor(shape, dtype, call, imp.node.name, imp.origin)


def _channels_last(imp: Importer, call: VendorCall, shape: tuple[Poly, ...], dtype: str) -> Tensor:
    """The convolution of operands that kernels of ours write channels-last."""
    call.operands = (*(_moved(imp, t) for t in call.operands[:2]), *call.operands[2:])
    call.last = True
    result = vendor_tensor((shape[0], *shape[2:], shape[1]), dtype, call, imp.node.name, imp.origin)
    return imp.view(result, shape, lambda i: (i[0], *i[2:], i[1]))


def _moved(imp: Importer, x: Tensor) -> Tensor:
    """x (n, c, ...) as (n, ..., c), one tensor for all that ask."""
    if (known := imp.together.get(("last", x))) is not None:
        return known
    result = imp.together["last", x] = imp.view(
        x, (x.shape[0], *x.shape[2:], x.shape[1]), lambda i: (i[0], i[-1], *i[1:-1])
    )
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
