"""Products in single precision whose operands a step converts to halves, and whose sums are a kernel's of ours.

The step is calls/converted.py; the product is a value as any of 16-bit matrices (tensorcores.py), so that scales, bias
and all that follows are computed on its sums.
"""

from __future__ import annotations

from math import prod

from kforge.engine.calls import converted
from kforge.engine.calls.vendor import VendorCall, as_view, vendor_tensor
from kforge.engine.graph.importer import Importer, Meta
from kforge.engine.graph.ir import REAL, Builder, Expr
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor
from kforge.engine.handlers.tensorcores import own_product


def converted_product(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor | None:
    """a @ b by halves and a kernel of ours, where that pays."""
    depth = a.shape[1]
    if meta.dtype != "float32" or not converted.pays(a.shape[0].hint(), b.shape[1].hint(), depth.hint()):
        return None
    sides = [a, b]
    along = (_straight(a), not _straight(b))
    given = [x if straight else _turned(imp, x) for x, straight in zip(sides, (along[0], not along[1]), strict=True)]
    work, name, origin = 2 * prod(meta.shape) * depth.hint(), imp.node.name, imp.origin
    call = VendorCall("mm", tuple(given), operations=work, scheme=converted.CONVERTED, labels=converted.RESULTS)
    call.facts = {"along": along, "dense": True}
    shape = (a.shape[0], b.shape[1])
    whole = vendor_tensor(shape, "float32", call, name, origin)
    halves = [vendor_tensor(x.shape, "float16", call, name, origin) for x in given]
    rows, columns = (vendor_tensor((size,), "float32", call, name, origin) for size in shape)
    left, right = (
        h if h.shape == x.shape and x is g else _turned(imp, h) for h, x, g in zip(halves, sides, given, strict=True)
    )
    sums = own_product(imp, meta, left, right)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        value, zero = ctx.value(sums, index, guard), b.const(0.0, REAL)
        row, column = ctx.value(rows, index[:1], guard), ctx.value(columns, index[1:], guard)
        plain = b.op("or", b.op("lt", row, zero, dtype="bool"), b.op("lt", column, zero, dtype="bool"), dtype="bool")
        marked = plain if guard is None else b.op("and", guard, plain, dtype="bool")
        scaled = b.op("mul", b.op("mul", value, row, dtype=REAL), column, dtype=REAL)
        return b.op("where", plain, ctx.value(whole, index, marked), scaled, dtype=REAL)

    result = imp.tensor(shape, "float32", at, sums, whole, rows, columns)
    result.factors = (a, b)
    return result


def _straight(x: Tensor) -> bool:
    """Whether the last dimension lies along memory, as it does of what is written for this."""
    try:
        found = as_view(Builder(), x, {})
    except Cut:
        return True
    return found is None or found.order != (1, 0)


def _turned(imp: Importer, x: Tensor) -> Tensor:
    return imp.view(x, (x.shape[1], x.shape[0]), lambda i: i[::-1])
