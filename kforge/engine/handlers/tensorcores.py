"""Products of matrices in 16 bits as values that a kernel of ours computes, for families/product.py to multiply tiles.

Such a value is a window without places: all of the depth, one product of two elements a tap. What comes after it is
part of the same kernel, before the one rounding of the result. Where few tiles would leave most multiprocessors idle,
shares of the depth are products of their own, whose sums the kernel after them adds up.
"""

from __future__ import annotations

from math import prod

from kforge.engine.families.product_cost import shares_for
from kforge.engine.graph.importer import Importer, Meta
from kforge.engine.graph.ir import REAL, Expr, Window
from kforge.engine.graph.symbols import Poly, Size, Tap, Var
from kforge.engine.graph.tensors import PRODUCT, Context, Cut, Guard, Index, Tensor, linear
from kforge.engine.handlers.composites import reduce


def own_product(imp: Importer, meta: Meta, a: Tensor, b: Tensor, spread: bool = False) -> Tensor:
    """a @ b for matrices of one 16-bit type or batches of them, summed in single precision.

    spread: columns are places of several dimensions, and loops over these may be a kernel's.

    A kernel of rows, and one that wants columns in another order, finds it in memory; the former has it at hand where
    the importer is told so (`rowwise`). A window whose `flat` is a loop is over that loop's share of the depth.
    """
    sizes = prod(s.hint() for s in a.shape[:-2]), a.shape[-2].hint(), b.shape[-1].hint(), a.shape[-1].hint()
    shares = shares_for(*sizes) if imp.switches.shared else 1
    depth = Tap("depth", a.shape[-1], 1)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        share, (*batch, row, col) = (index[0], index[1:]) if shares > 1 else (None, index)
        by_rows = imp.switches.rowwise and shares == 1 and len(ctx.cols) == 1 and col == Poly.of(ctx.cols[0])
        several = len(col.terms) > 1 and not (spread and _side_by_side(col, ctx.cols))
        if (ctx.rows and not by_rows) or guard is not None or not all(map(_loops, index)) or several or ctx.windows:
            raise Cut(result)
        k = Poly.of(depth)
        left, right = _element(ctx, a, (*batch, row, k)), _element(ctx, b, (*batch, k, col))
        terms = ctx.builder.op("mul", left, right, dtype=REAL)
        expr = ctx.builder.window(Window(PRODUCT, (depth,), (), share), terms, REAL)
        ctx.windows[expr.uid] = result
        return expr

    shape = (*a.shape[:-1], b.shape[-1])
    result = imp.tensor(shape if shares == 1 else (Poly.of(shares), *shape), meta.dtype, at, a, b)
    result.name = imp.node.name
    if shares == 1:
        return result
    result.name += "_shares"
    return reduce(imp, "sum", result, 0, False, meta.dtype)


def _side_by_side(index: Poly, loops: tuple[Var, ...]) -> bool:
    """Whether an index walks over the last of the loops as over one."""
    last = (loops[-n:] for n in range(2, len(loops)))
    return any(index == linear(tuple(map(Poly.of, some)), tuple(v.size for v in some)) for some in last)


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
        if cut.tensor.vendor is not None:  # in memory once it is called
            raise
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
