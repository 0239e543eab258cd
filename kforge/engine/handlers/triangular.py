"""Products of which half is known: of a matrix with its own transpose, and with triangular or banded operands."""

from __future__ import annotations

from math import isinf

from kforge.engine.calls import bands
from kforge.engine.calls.vendor import VendorCall
from kforge.engine.graph.importer import Importer
from kforge.engine.graph.ir import FLOATS, REAL, Builder, Expr
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor
from kforge.engine.handlers.bands import shown
from kforge.engine.handlers.composites import reduce

LEFT, RIGHT = "left", "right"
FAR = 1 << 40  # beyond any place


def symmetric(imp: Importer, result: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a @ a.T is its lower half and that mirrored: what is read of the product is a band (calls/bands.py).

    Both halves are sums of the same products, whatever they are.
    """
    if result.shape[0] != result.shape[1] or result.shape[1].hint() < bands.LEAST:
        return result
    row, depth = (Poly.of(Var(name, size)) for name, size in zip("ik", a.shape, strict=True))
    ctx = Context(Builder(simplify))
    try:
        if ctx.value(a, (row, depth)) is not ctx.value(b, (depth, row)):
            return result
    except Cut:
        return result

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        c, (i, j) = ctx.builder, index
        below = c.op("le", c.index(j), c.index(i), dtype="bool")
        above = c.op("not", below, dtype="bool")
        arms = []
        for here, place in ((below, (i, j)), (above, (j, i))):
            arms.append(ctx.value(result, place, here if guard is None else c.op("and", guard, here, dtype="bool")))
        return c.op("where", below, *arms, dtype=REAL)

    return imp.tensor(result.shape, result.dtype, at, result)


def band_of(x: Tensor) -> bands.Band | None:
    """The least and greatest distance of a column beyond its row where a matrix may be other than zero; None for all.

    Seen where it is written with a mask of places: tril, triu, where, masked_fill.
    """
    row, column = (Poly.of(Var(name, size)) for name, size in zip("ij", x.shape, strict=True))
    try:
        e = Context(Builder(simplify)).value(x, (row, column))
    except Cut:
        return None
    if e.op != "where":
        return None
    condition, yes, no = e.args
    if yes.op == "const" and yes.value == 0:
        condition = Builder().op("not", condition, dtype="bool")
    elif no.op != "const" or no.value != 0:
        return None
    found = shown(condition, row, column)
    return found if found is not None and found != bands.ALL and found[0] <= found[1] else None


def triangular(imp: Importer, call: VendorCall, dtype: str) -> bool:
    """Note on a product that an operand is zero outside of a band: the library multiplies what is in it."""
    a, b = call.operands
    if dtype not in FLOATS or min(s.hint() for s in (*a.shape, b.shape[1])) < bands.LEAST:
        return False
    for side, x in ((LEFT, a), (RIGHT, b)):
        band = band_of(x)
        if band is not None:
            imp.at_least(a.shape[1], 1)
            call.facts = {**call.facts, "operand_band": (side, band)}
            return True
    return False


def with_nan(imp: Importer, call: VendorCall, result: Tensor) -> Tensor:
    """The product as torch has it: zeros that were left out, times infinities and NaN, are NaN.

    Of each line of the other operand the first and the last place that is not finite is found, in one pass.
    """
    side, (low, high) = call.facts["operand_band"]
    other = call.operands[1 if side == LEFT else 0]
    axis = 0 if side == LEFT else 1
    least, most = (low, high) if side == LEFT else (-high, -low)  # of the depth, beyond the own place

    def extreme(kind: str, absent: int) -> Tensor:
        """The last or the first place of each line that is not finite."""

        def at(ctx: Context, index: Index, guard: Guard) -> Expr:
            b, value = ctx.builder, ctx.value(other, index, guard)
            gap = b.op("sub", value, value, dtype=REAL)  # zero, but NaN of what is not finite
            odd = b.op("ne", gap, b.const(0.0, REAL), dtype="bool")
            return b.op("where", odd, b.index(index[axis]), b.const(absent, "int64"), dtype="int64")

        return reduce(imp, kind, imp.tensor(other.shape, "int64", at, other), axis, False, "int64")

    last = None if isinf(most) else extreme("max", -FAR)
    first = None if isinf(least) else extreme("min", FAR)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b, (i, j) = ctx.builder, index
        line, place = ((j,), i) if side == LEFT else ((i,), j)
        odd = b.const(False, "bool")
        if last is not None:
            odd = b.op("gt", ctx.value(last, line, guard), b.index(place + int(most)), dtype="bool")
        if first is not None:
            before = b.op("lt", ctx.value(first, line, guard), b.index(place + int(least)), dtype="bool")
            odd = before if last is None else b.op("or", odd, before, dtype="bool")
        return b.op("where", odd, b.const(float("nan"), REAL), ctx.value(result, index, guard), dtype=REAL)

    return imp.tensor(result.shape, result.dtype, at, result, *(t for t in (last, first) if t is not None))
