"""Rewrites of products as tensors: sums of a product, products with a diagonal matrix. Conditions stand at each.

They change the order of additions and nothing else, so that results are at least as accurate as the reference's; what
is not finite stays so: an infinity or NaN anywhere in a row or column that the reference multiplies reaches the result.
"""

from __future__ import annotations

from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta
from kforge.engine.graph.ir import FLOATS, REAL, Buffer, Builder, Expr, walk
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor, upstream
from kforge.engine.handlers.composites import SUM_REWRITES, op, reduce
from kforge.engine.handlers.operators import POINTWISE

Parts = tuple[Expr | None, Expr | None]
"""Factor and summand of alpha * product + beta; None for a factor of zero and for no summand."""


def sum_of_product(imp: Importer, x: Tensor, over: list[int], dtype: str) -> Tensor | None:
    """Of alpha (a @ b) + beta, summed over rows or columns: alpha (a @ sums of b) + sums of beta, or the other way.

    Conditions: two matrices in floats, alpha the same along the summed dimensions, and nothing but sums wants the
    product: a norm over its rows does. A product of 1,024 x 8,192 and 8,192 x 8,192 then costs one pass over its
    operands.
    """
    product = _only_product(x)
    if product is None or x.shape != product.shape or not _only_summed(imp, product):
        return None
    if len(over) == 2:  # all of it: rows first
        rows = sum_of_product(imp, x, [1], dtype)
        return None if rows is None else reduce(imp, "sum", rows, None, False, dtype)
    assert product.factors is not None
    a, b = product.factors
    stand_in = Buffer(f"a_product_{id(product)}", product.dtype, product.shape, "temporary")
    summed, kept = over[0], 1 - over[0]
    probe = Context(Builder(simplify))
    loops = tuple(Var(f"i{d}", size) for d, size in enumerate(x.shape))
    parts = _parts(_seen_through(probe, x, tuple(map(Poly.of, loops)), product, stand_in), stand_in, probe.builder)
    if parts is None or parts[0] is None or loops[summed] in parts[0].variables():
        return None

    def part(which: int) -> Tensor:
        def at(ctx: Context, index: Index, guard: Guard) -> Expr:
            found = _parts(_seen_through(ctx, x, index, product, stand_in), stand_in, ctx.builder)
            assert found is not None
            return found[which] or ctx.builder.const(0.0, REAL)

        others = tuple(t for t in _upstream(x) if t is not product)
        return Tensor(x.shape, dtype, at, "factor" if which == 0 else "summand", imp.origin, inputs=others)

    if summed == 1:
        total = _times(imp, a, b, 1)
    else:
        total = _times(imp, HANDLERS["t"](imp, Meta(b.dtype, (), imp.operator), b), a, 0)
    factor, zero = part(0), Poly()
    along = imp.view(factor, (x.shape[kept],), lambda i: (i[0], zero) if kept == 0 else (zero, i[0]))
    result = op(imp, "mul", total, along, dtype=dtype)
    if parts[1] is not None:
        result = op(imp, "add", result, reduce(imp, "sum", part(1), summed, False, dtype), dtype=dtype)
    return result


SUM_REWRITES.append(sum_of_product)


def _times(imp: Importer, a: Tensor, b: Tensor, axis: int) -> Tensor:
    """A matrix times the sums of another along `axis`, as sums over its rows.

    An infinity times values of both signs, or zero, is NaN in the reference: their sum alone does not tell, so signs
    are counted beside it.
    """
    kind = "float32" if b.dtype != "float64" else b.dtype
    vector = reduce(imp, "sum", b, axis, False, kind)
    number = b.shape[axis]

    def sign(builder: Builder, v: Expr) -> Expr:
        return builder.cast(POINTWISE["sign"](builder, v), "int32")

    signs = reduce(imp, "sum", imp.map(sign, b, dtype="int32", compute=REAL), axis, False, "int32")

    def terms(ctx: Context, index: Index, guard: Guard) -> Expr:
        builder = ctx.builder
        value, total = ctx.value(a, index, guard), ctx.value(vector, index[1:], guard)
        count, whole = ctx.value(signs, index[1:], guard), builder.cast(builder.index(number), "int32")
        pure = builder.op(
            "or",
            builder.op("eq", count, whole, dtype="bool"),
            builder.op("eq", count, builder.op("neg", whole, dtype="int32"), dtype="bool"),
            dtype="bool",
        )
        infinite = builder.op("isinf", value, dtype="bool")
        mixed = builder.op("and", infinite, builder.op("not", pure, dtype="bool"), dtype="bool")
        product = builder.op("mul", value, total, dtype=REAL)
        return builder.op("where", mixed, builder.const(float("nan"), REAL), product, dtype=REAL)

    imp.equal(a.shape[1], vector.shape[0])
    return reduce(imp, "sum", imp.tensor(a.shape, kind, terms, a, vector, signs), 1, False, kind)


def _only_product(x: Tensor) -> Tensor | None:
    """The one product of two matrices in floats that a value depends on, and nothing else that must be in memory."""
    found = [t for t in _upstream(x) if t.factors is not None or t.vendor is not None or t.scatter is not None]
    return found[0] if len(found) == 1 and found[0].factors is not None and found[0].dtype in FLOATS else None


def _only_summed(imp: Importer, product: Tensor) -> bool:
    """Whether the node at hand is a sum or a mean, and what lies between it and the product leads to no others."""

    def sums(node: Any) -> bool:
        return str(node.target).split(".")[1:2] in (["sum"], ["mean"])

    between: dict[Any, None] = {}
    waiting = [*imp.node.all_input_nodes]
    while waiting:
        node = waiting.pop()
        value = imp.values.get(node)
        if node not in between and isinstance(value, Tensor) and product in _upstream(value):
            between[node] = None
            waiting += node.all_input_nodes
    users = {user for node in between for user in node.users}
    return sums(imp.node) and all(user in between or sums(user) for user in users)


def _upstream(x: Tensor) -> list[Tensor]:
    return upstream(x, through=lambda t: t.factors is None and t.vendor is None)


def _seen_through(ctx: Context, x: Tensor, index: Index, product: Tensor, stand_in: Buffer) -> Expr | None:
    """The value of x with the product as if it were in memory; None where something else would have to be."""
    inner = Context(ctx.builder, ctx.rows, ctx.cols, {**ctx.materialised, product: stand_in})
    try:
        return inner.value(x, index)
    except Cut as cut:
        if ctx.cols:
            raise
        del cut
        return None


def _parts(e: Expr | None, stand_in: Buffer, b: Builder) -> Parts | None:
    """`e` as factor * product + summand; None where it is no such."""
    if e is None:
        return None
    if all(v.buffer is not stand_in for v in walk([e]) if v.op == "load"):
        return None, e
    if e.op == "load":
        return b.const(1.0, REAL), None
    if e.dtype != REAL or e.op not in ("add", "sub", "mul", "div", "neg"):
        return None
    found = [_parts(a, stand_in, b) for a in e.args]
    if any(p is None for p in found):
        return None
    left, right = found[0], found[1] if len(found) > 1 else None
    assert left is not None
    if e.op == "neg":
        return tuple(None if p is None else b.op("neg", p, dtype=REAL) for p in left)  # type: ignore[return-value]
    assert right is not None
    if e.op in ("add", "sub"):
        return _join(e.op, left[0], right[0], b), _join(e.op, left[1], right[1], b)
    if e.op == "mul" and left[0] is None:
        left, right = right, left
    if right[0] is not None or right[1] is None:
        return None
    scale = right[1]
    return tuple(None if p is None else b.op(e.op, p, scale, dtype=REAL) for p in left)  # type: ignore[return-value]


def _join(name: str, left: Expr | None, right: Expr | None, b: Builder) -> Expr | None:
    if left is None or right is None:
        return left if right is None else right if name == "add" else b.op("neg", right, dtype=REAL)
    return b.op(name, left, right, dtype=REAL)


def diagonal_of(imp: Importer, x: Tensor) -> Tensor | None:
    """The diagonals of square matrices that are zero elsewhere by construction (diag, diag_embed, eye); else None."""
    if len(x.shape) < 2 or x.shape[-2].hint() != x.shape[-1].hint() or x.dtype not in FLOATS:
        return None
    loops = tuple(Poly.of(Var(f"i{k}", size)) for k, size in enumerate(x.shape))
    try:
        b = Builder(simplify)
        e = Context(b).value(x, loops)
    except Cut:
        return None
    places = set(loops[-2:])  # torch counts up to small sizes in narrow types
    same = [
        v for v in walk([e]) if v.op == "eq" and {(a.args[0] if a.op == "cast" else a).index for a in v.args} == places
    ]
    elsewhere = e if not same else _with_false(b, e, same[0])
    if elsewhere.op != "const" or elsewhere.value != 0:
        return None
    imp.equal(*x.shape[-2:])
    return Tensor(x.shape[:-1], x.dtype, lambda ctx, k, guard: ctx.value(x, (*k, k[-1]), guard), "diagonal", x.origin,
                  inputs=(x,))  # fmt: skip


def _with_false(b: Builder, e: Expr, test: Expr) -> Expr:
    """`e` where a condition does not hold."""
    memo: dict[int, Expr] = {test.uid: b.const(False, "bool")}
    for v in walk([e]):
        if v.uid not in memo:
            args = tuple(memo[a.uid] for a in v.args)
            plain = args == v.args or v.index is not None or v.op in ("reduce", "window")
            memo[v.uid] = v if plain else b.op(v.op, *args, dtype=v.dtype)
    return memo[e.uid]


def product_at_diagonal(imp: Importer, x: Tensor) -> Tensor | None:
    """The diagonal of a @ b (hence its trace): sums of a times b transposed, none of the other elements.

    Conditions: the product is computed by a library otherwise, is square, and nothing else wants it.
    """
    alone = [n for n in imp.node.all_input_nodes if imp.values.get(n) is x and len(n.users) == 1]
    if x.factors is None or not alone or x.shape[0] != x.shape[1] or x.dtype not in FLOATS:
        return None
    a, b = x.factors
    turned = imp.view(b, b.shape[::-1], lambda i: i[::-1])
    return reduce(imp, "sum", op(imp, "mul", a, turned), 1, False, x.dtype)


def diagonal_product(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor | None:
    """diag(d) @ b is d times the rows of b, b @ diag(d) its columns times d; None where neither is diagonal.

    The reference adds zeros times the other elements: where one of those is not finite the result is NaN. They are
    counted, in one more pass over b, which is far from a product's cost. Of batches, each product for itself.
    """
    left, right = diagonal_of(imp, a), diagonal_of(imp, b)
    if (left is None) == (right is None):
        return None
    full, axis = (b, len(b.shape) - 2) if left is not None else (a, len(a.shape) - 1)
    imp.equal(a.shape[-1], b.shape[-2])
    for one, other in zip(a.shape[:-2], b.shape[:-2], strict=True):
        imp.equal(one, other)
    d = left or right
    assert d is not None

    def odd(builder: Builder, v: Expr) -> Expr:
        gap = builder.op("sub", v, v, dtype=REAL)  # zero, but NaN of what is not finite
        return builder.cast(builder.op("ne", gap, builder.const(0.0, REAL), dtype="bool"), "int32")

    flags = imp.map(odd, full, dtype="int32", compute=REAL)
    count = reduce(imp, "sum", flags, axis, True, "int32")
    shape = list(full.shape)
    shape[-1 if left is not None else -2] = Poly.of(1)
    scale = imp.view(d, shape, lambda i: i[:-1] if left is not None else (*i[:-2], i[-1]))
    scaled = op(imp, "mul", full, scale, dtype=meta.dtype)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        builder = ctx.builder
        others = ctx.value(count, tuple(Poly() if d == axis else i for d, i in enumerate(index)), guard)
        own = ctx.value(flags, index, guard)
        clean = builder.op("eq", others, own, dtype="bool")
        return builder.op(
            "where", clean, ctx.value(scaled, index, guard), builder.const(float("nan"), REAL), dtype=REAL
        )

    return imp.tensor(full.shape, meta.dtype, at, count, flags, scaled)
