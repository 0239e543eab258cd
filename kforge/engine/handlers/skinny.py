"""Products with a vector: rows of a matrix times one column, which is bound by memory and a reduction like any other.

A sum of products in float, by pairs: at least as accurate as a library's product of one column, and what comes before
and after is part of the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kforge.engine.emit.rowscode import FEW
from kforge.engine.graph.importer import Importer, Meta, handles
from kforge.engine.graph.ir import FLOATS, REAL, Builder, Expr
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor
from kforge.engine.handlers.composites import reduce
from kforge.engine.handlers.operators import POINTWISE


def skinny(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor | None:
    """a @ b, (.., m, k) @ (.., k, n) with equal leading dimensions, where m or n is one; None for wider products.

    Up to FEW rows or columns beside many are taken too where both operands lie along k, as in a linear layer on a
    small batch.
    """
    if meta.dtype not in FLOATS or a.dtype != meta.dtype or b.dtype != meta.dtype:
        return None
    m, n = a.shape[-2].hint(), b.shape[-1].hint()
    if a.shape[-1].hint() < 2:
        return None
    if 1 not in (m, n):
        return _thin(imp, meta, a, b) if min(m, n) <= FEW and max(m, n) >= 64 * min(m, n) else None
    lead = tuple(imp.equal(s, t) for s, t in zip(a.shape[:-2], b.shape[:-2], strict=True))
    inner = imp.equal(a.shape[-1], b.shape[-2])
    for size in (a.shape[-2],) if n != 1 else (b.shape[-1],):
        imp.fix(size)
    outer = a.shape[-2] if n == 1 else b.shape[-1]
    one = Poly()

    def terms(ctx: Context, index: Index, guard: Guard) -> Expr:
        *front, i, k = index
        left = ctx.value(a, (*front, i if n == 1 else one, k), guard)
        right = ctx.value(b, (*front, k, one if n == 1 else i), guard)
        return ctx.builder.op("mul", left, right, dtype=REAL)

    products = imp.tensor((*lead, outer, inner), meta.dtype, terms, a, b)
    total = reduce(imp, "sum", products, -1, False, meta.dtype)
    back: Callable[[Index], Index] = lambda i: i[:-1] if n == 1 else (*i[:-2], i[-1])  # noqa: E731
    return imp.view(total, (*lead, a.shape[-2], b.shape[-1]), back)


def _thin(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor | None:
    """Two matrices of which one has few rows or columns; a row of the result's sums for each of the many."""
    if len(a.shape) != 2 or a.shape[1].hint() < 1024 or not (_along(a, 1) and _along(b, 0)):
        return None
    inner = imp.equal(a.shape[1], b.shape[0])
    wide = a.shape[0].hint() > b.shape[1].hint()  # many rows, few columns
    imp.fix(b.shape[1] if wide else a.shape[0])
    shape = (a.shape[0], b.shape[1], inner)

    def terms(ctx: Context, index: Index, guard: Guard) -> Expr:
        i, j, k = index
        return ctx.builder.op("mul", ctx.value(a, (i, k), guard), ctx.value(b, (k, j), guard), dtype=REAL)

    return reduce(imp, "sum", imp.tensor(shape, meta.dtype, terms, a, b), -1, False, meta.dtype)


def _along(x: Tensor, axis: int) -> bool:
    """Whether a matrix is read from memory as it is, neighbours along `axis` next to each other."""
    loops = [Var(f"i{d}", size) for d, size in enumerate(x.shape)]
    try:
        e = Context(Builder(simplify)).value(x, tuple(map(Poly.of, loops)))
    except Cut:
        return False
    return e.op == "load" and e.index is not None and e.index.coefficient(loops[axis]).constant == 1


@handles("mv")
def _mv(imp: Importer, meta: Meta, a: Tensor, x: Tensor) -> Tensor:
    """A matrix times a vector."""
    column = imp.view(x, (x.shape[0], Poly.of(1)), lambda i: i[:1])
    result = skinny(imp, meta, a, column)
    if result is None:
        raise imp.reject(f"a product of {a.dtype} and {x.dtype}")
    return imp.view(result, (a.shape[0],), lambda i: (*i, Poly()))


@handles("addmv")
def _addmv(imp: Importer, meta: Meta, y: Tensor, a: Tensor, x: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta y + alpha A x; y times zero is not read, NaN or not."""
    result = _mv(imp, meta, a, x)
    if alpha != 1:
        result = imp.map(POINTWISE["mul"], result, alpha, dtype=meta.dtype)
    if beta == 0:
        return result
    scaled = y if beta == 1 else imp.map(POINTWISE["mul"], y, beta, dtype=meta.dtype)
    return imp.map(POINTWISE["add"], scaled, result, dtype=meta.dtype)


@handles("dot", "vdot")
def _dot(imp: Importer, meta: Meta, x: Tensor, y: Tensor) -> Tensor:
    """The sum of products of two vectors."""
    return reduce(imp, "sum", imp.map(POINTWISE["mul"], x, y, dtype=meta.dtype), None, False, meta.dtype)
