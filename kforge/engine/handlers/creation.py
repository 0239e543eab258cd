"""Handlers of tensors made from nothing but positions: constants, ranges, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kforge.engine.graph.importer import Importer, Meta, cast, computing, handles, literal, wide
from kforge.engine.graph.ir import Expr
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.slices import both


@handles("full", "zeros", "ones", "empty_like_full")
def _full(imp: Importer, meta: Meta, sizes: Sequence[int], value: Any = None, **_: Any) -> Tensor:
    value = value if value is not None else (1 if ".ones" in meta.operator else 0)
    shape = [imp.free_size(int(s), wide(axis)) for axis, s in enumerate(sizes)]
    if 1 in sizes:
        _fix_ones(imp)
    return imp.tensor(shape, meta.dtype, lambda ctx, i, guard: literal(ctx, value, computing(meta.dtype)))


def _fix_ones(imp: Importer) -> None:
    """What is made as long as a dimension of size one would be broadcast where that is another."""
    for symbol in list(imp.sources):
        if symbol.hint == 1:
            imp.fix(imp.resolve(Poly.of(symbol)))


@handles("scalar_tensor")
def _scalar(imp: Importer, meta: Meta, value: Any, **_: Any) -> Tensor:
    return imp.tensor((), meta.dtype, lambda ctx, i, guard: literal(ctx, value, computing(meta.dtype)))


@handles("full_like", "zeros_like", "ones_like")
def _full_like(imp: Importer, meta: Meta, x: Tensor, value: Any = None, **_: Any) -> Tensor:
    value = value if value is not None else (1 if "ones_like" in meta.operator else 0)
    return imp.tensor(x.shape, meta.dtype, lambda ctx, i, guard: literal(ctx, value, computing(meta.dtype)))


@handles("arange", "iota")
def _arange(imp: Importer, meta: Meta, *args: Any, **kwargs: Any) -> Tensor:
    start, step = kwargs.get("start", 0), kwargs.get("step", 1)
    if ".arange.start" in meta.operator:
        start, step = args[0], args[2] if len(args) > 2 else 1
    if not isinstance(start, int) or not isinstance(step, int):
        raise imp.reject("a fractional start or step")

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        return cast(ctx, ctx.builder.index(index[0] * step + start), computing(meta.dtype))

    if meta.shape[0] == 1:
        _fix_ones(imp)
    return imp.tensor([imp.free_size(meta.shape[0], wide(0))], meta.dtype, at)


@handles("triu", "tril")
def _triangle(imp: Importer, meta: Meta, x: Tensor, diagonal: int = 0) -> Tensor:
    upper = "triu" in meta.operator

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        row, col = ctx.builder.index(index[-2] + diagonal), ctx.builder.index(index[-1])
        inside = ctx.builder.op("ge" if upper else "le", col, row, dtype="bool")
        zero = literal(ctx, 0, computing(meta.dtype))
        return ctx.builder.op("where", inside, ctx.value(x, index, both(ctx, guard, inside)), zero, dtype=zero.dtype)

    return imp.tensor(x.shape, meta.dtype, at, x)
