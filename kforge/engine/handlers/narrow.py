"""Products of narrow operands that a library computes: eight-bit integers and floats, scaled, and groups of rows.

What comes before (quantisation) and after (scales, biases, activations) is in kernels of ours. Products of integers
that the reference computes in floating point are the library's integer ones: exact, where floats round.
"""

from __future__ import annotations

from math import prod
from typing import Any

from kforge.engine.calls.vendor import INTEGER, VendorCall, vendor_tensor
from kforge.engine.graph.importer import Importer, Meta, handles
from kforge.engine.graph.ir import REAL, Builder, Expr
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor

WORTHWHILE = 1_000_000_000
"""Operations of a product that is worth another type."""


@handles("_int_mm")
def _int_mm(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor:
    """Integers of eight bits, summed in 32."""
    imp.at_least(imp.equal(a.shape[1], b.shape[0]), 2)  # on a CPU torch gives what was in memory for a depth of one
    return _integers_product(imp, a, b)


@handles("_scaled_mm")
def _scaled_mm(
    imp: Importer,
    meta: Meta,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Floats of eight bits with a scale each, or one for each row and column."""
    if scale_result is not None:
        raise imp.reject("a scale of the result")
    imp.equal(a.shape[1], b.shape[0])
    operands = (a, b, scale_a, scale_b, *([bias] if bias is not None else []))
    keywords = {"out_dtype": out_dtype} if out_dtype is not None else {}
    keywords |= {"use_fast_accum": True} if use_fast_accum else {}
    work = 2 * prod(meta.shape) * a.shape[1].hint()
    call = VendorCall("_scaled_mm", operands, keywords, work)
    return vendor_tensor((a.shape[0], b.shape[1]), meta.dtype, call, imp.node.name, imp.origin)


@handles("_grouped_mm")
def _grouped_mm(
    imp: Importer,
    meta: Meta,
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Rows of a, in groups that end at `offs`, each group times a matrix of its own."""
    if offs is None or bias is not None or (len(a.shape), len(b.shape)) != (2, 3):
        raise imp.reject(f"operands of {len(a.shape)} and {len(b.shape)} dimensions")
    imp.equal(a.shape[1], b.shape[1])
    imp.equal(offs.shape[0], b.shape[0])
    call = VendorCall("_grouped_mm", (a, b, offs), {"out_dtype": out_dtype} if out_dtype is not None else {})
    call.operations = 2 * prod(meta.shape) * a.shape[1].hint()
    call.names = ("", "", "offs")
    return vendor_tensor((a.shape[0], b.shape[2]), meta.dtype, call, imp.node.name, imp.origin)


def integer_product(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor | None:
    """a @ b of two matrices of eight-bit integers that were made floats for it; None where it is no such product."""
    rows, depth, columns = a.shape[0].hint(), a.shape[1].hint(), b.shape[1].hint()
    if 2 * rows * depth * columns < WORTHWHILE or rows <= 16 or depth % 8 or columns % 8 or meta.dtype == "float64":
        return None
    left, right = _integers(a), _integers(b)
    if left is None or right is None:
        return None
    imp.equal(a.shape[1], b.shape[0])
    product = _integers_product(imp, left, right)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        return ctx.builder.cast(ctx.value(product, index, guard), REAL)

    return imp.tensor(product.shape, meta.dtype, at, product)


def _integers_product(imp: Importer, a: Tensor, b: Tensor) -> Tensor:
    rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
    work = 2 * rows.hint() * depth.hint() * columns.hint()
    call = VendorCall("_int_mm", (a, b), operations=work, scheme=INTEGER)
    return vendor_tensor((rows, columns), "int32", call, imp.node.name, imp.origin)


def _integers(x: Tensor) -> Tensor | None:
    """The integers that a tensor of floats was made from."""
    loops = tuple(Poly() if s.constant == 1 else Poly.of(Var(f"i{d}", s)) for d, s in enumerate(x.shape))
    try:
        e = Context(Builder(simplify)).value(x, loops)
    except Cut:
        return None
    if e.op != "cast" or e.args[0].dtype != "int8":
        return None

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        return ctx.value(x, index, guard).args[0]

    return Tensor(x.shape, "int8", at, x.name, x.origin, inputs=(x,))
