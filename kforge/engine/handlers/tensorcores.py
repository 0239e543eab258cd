"""Products of matrices in 16 bits as values that a kernel of ours computes, for families/product.py to multiply tiles.

Such a value is a window without places: all of the depth, one product of two elements a tap. What comes after it is
part of the same kernel, before the one rounding of the result.
"""

from __future__ import annotations

from kforge.engine.graph.importer import Importer, Meta
from kforge.engine.graph.ir import REAL, Expr, Window
from kforge.engine.graph.symbols import Poly, Size, Tap, Var
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor, linear

PRODUCT = "product"
"""The kind of such a window."""


def own_product(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor:
    """a @ b for matrices of one 16-bit type or batches of them, summed in single precision.

    A kernel of rows, and one that wants columns in another order, finds it in memory.
    """
    depth = Tap("depth", a.shape[-1], 1)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        *batch, row, col = index
        if ctx.rows or guard is not None or not all(map(_loops, index)) or len(col.terms) > 1:
            raise Cut(result)
        k = Poly.of(depth)
        left, right = _element(ctx, a, (*batch, row, k)), _element(ctx, b, (*batch, k, col))
        terms = ctx.builder.op("mul", left, right, dtype=REAL)
        expr = ctx.builder.window(Window(PRODUCT, (depth,), ()), terms, REAL)
        ctx.windows[expr.uid] = result
        return expr

    result = imp.tensor((*a.shape[:-1], b.shape[-1]), meta.dtype, at, a, b)
    result.name = imp.node.name
    return result


def _loops(index: Poly) -> bool:
    """Whether an index is made of a kernel's own loops and sizes."""
    moving = [atom for atom in index.atoms() if not isinstance(atom, Size)]
    return all(isinstance(atom, Var) and not isinstance(atom, Tap) for atom in moving)


def _element(ctx: Context, x: Tensor, index: Index) -> Expr:
    """An element of an operand that lies in memory as dense matrices, whichever way; what does not is put there.

    All matrices of a batch may be the same one.
    """
    loops = tuple(Poly() if size.constant == 1 else Poly.of(Var(f"v{d}", size)) for d, size in enumerate(x.shape))
    inner = Context(ctx.builder, materialised=ctx.materialised)
    try:
        e = inner.value(x, loops)
    except Cut as cut:
        x.exact = True
        raise Cut(x) from cut
    *batch, i, k = range(len(loops))
    ways = []
    for order in ((i, k), (k, i)):
        for whole in (order, (*batch, *order)):
            ways.append(linear(tuple(loops[d] for d in whole), tuple(x.shape[d] for d in whole)))
    plain = e.op == "load" and not e.args and e.buffer is not None and e.buffer.dtype == x.dtype
    if not plain or e.index not in ways:
        x.exact = True
        raise Cut(x)
    return ctx.value(x, index)
