"""Handlers of distances between vectors: cdist, pdist and dist, as vector norms of differences."""

from __future__ import annotations

import math
from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, cast, handles
from kforge.engine.graph.ir import REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, Value
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.composites import op


@handles("_cdist_forward")
def _cdist(imp: Importer, meta: Meta, x: Tensor, y: Tensor, p: float, how: Any = None) -> Tensor:
    """Each vector of x against each of y: nothing of their size times their number is in memory."""
    if x.dtype != "float32" and x.dtype != "float64":
        raise imp.reject(f"vectors of {x.dtype}")
    one = Poly.of(1)
    width = imp.equal(x.shape[-1], y.shape[-1])
    left = imp.view(x, (*x.shape[:-1], one, width), lambda i: (*i[:-2], i[-1]))
    right = imp.view(y, (*y.shape[:-2], one, y.shape[-2], width), lambda i: (*i[:-3], *i[-2:]))
    gap = op(imp, "sub", left, right, dtype=meta.dtype)
    return HANDLERS["linalg_vector_norm"](imp, meta, gap, math.inf if math.isinf(p) else p, [-1])


@handles("_pdist_forward")
def _pdist(imp: Importer, meta: Meta, x: Tensor, p: float = 2) -> Tensor:
    """Each pair of vectors once, in the order of the rows above the diagonal of a square."""
    count, width = x.shape
    if count.hint() < 2:
        raise imp.reject(f"pairs among {count.hint()} vectors")
    pairs = imp.derived(count * count - count, 0, 2)

    def gap(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        row, column = (Poly.of(Value(e, x.shape[0])) for e in _pair(b, b.index(index[0]), count))
        left, right = (cast(ctx, ctx.value(x, (i, index[1]), guard), REAL) for i in (row, column))
        return b.op("sub", left, right, dtype=REAL)

    gaps = imp.tensor((pairs, width), x.dtype, gap, x)
    return HANDLERS["linalg_vector_norm"](imp, meta, gaps, math.inf if math.isinf(p) else p, [-1])


def _pair(b: Builder, place: Expr, count: Poly) -> tuple[Expr, Expr]:
    """Row and column of a place above the diagonal of a square of side `count`, whose rows get shorter by one each.

    A root in single precision gives the row, or the next one to it, which integers decide: up to 2^20 vectors, whose
    pairs fill no memory.
    """
    side = b.index(2 * count - 1)

    def number(n: int) -> Expr:
        return b.const(n, "int64")

    def op(name: str, left: Expr, right: Expr) -> Expr:
        return b.op(name, left, right, dtype="int64")

    def begin(row: Expr) -> Expr:
        return op("shr", op("mul", row, op("sub", side, row)), number(1))

    under = b.cast(op("sub", op("mul", side, side), op("mul", number(8), place)), REAL)
    root = b.op("sub", b.cast(side, REAL), b.op("sqrt", under, dtype=REAL), dtype=REAL)
    row = b.cast(b.op("mul", root, b.const(0.5, REAL), dtype=REAL), "int64")
    over = b.op("gt", begin(row), place, dtype="bool")
    row = b.op("where", over, op("sub", row, number(1)), row, dtype="int64")
    following = op("add", row, number(1))
    row = b.op("where", b.op("le", begin(following), place, dtype="bool"), following, row, dtype="int64")
    return row, op("add", op("sub", place, begin(row)), op("add", row, number(1)))


@handles("dist")
def _dist(imp: Importer, meta: Meta, x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    return HANDLERS["linalg_vector_norm"](imp, meta, op(imp, "sub", x, y, dtype=meta.dtype), p)
