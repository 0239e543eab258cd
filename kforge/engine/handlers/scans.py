"""Handlers of running results along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp."""

from __future__ import annotations

from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, computing, handles, literal
from kforge.engine.graph.tensors import Reduction, Tensor
from kforge.engine.handlers.composites import cast_to


def scan(imp: Importer, kind: str, x: Tensor, dim: int, dtype: str) -> Tensor:
    """The running `kind` of `x` along `dim`, first element first; the result keeps the shape."""
    rank = len(x.shape)
    if rank == 0 or x.shape[dim % rank].hint() == 1:
        for d in (dim % rank,) if rank else ():
            imp.fix(x.shape[d])
        if kind.startswith(("arg", "sort")):
            return imp.tensor(x.shape, dtype, lambda ctx, i, guard: literal(ctx, 0, computing(dtype)))
        return cast_to(imp, x, dtype)
    d = dim % rank
    last = d == rank - 1
    order = [*(a for a in range(rank) if a != d), d]
    source = x if last else HANDLERS["permute"](imp, Meta(x.dtype, (), imp.operator), x, order)
    result = imp.tensor(x.shape, dtype, lambda ctx, i, guard: ctx.scanned(result, i), source)
    result.reduction = Reduction(f"scan_{kind}", source, 1, () if last else (d,))
    return result


def _as(imp: Importer, x: Tensor, dtype: str) -> Tensor:
    if dtype == "float64" and x.dtype != "float64":
        raise imp.reject("a running result in double of values that are not")
    return cast_to(imp, x, dtype)


@handles("cumsum")
def _cumsum(imp: Importer, meta: Meta, x: Tensor, dim: int, **_: Any) -> Tensor:
    return scan(imp, "sum", _as(imp, x, meta.dtype), dim, meta.dtype)


@handles("cumprod")
def _cumprod(imp: Importer, meta: Meta, x: Tensor, dim: int, **_: Any) -> Tensor:
    return scan(imp, "prod", _as(imp, x, meta.dtype), dim, meta.dtype)


@handles("logcumsumexp")
def _logcumsumexp(imp: Importer, meta: Meta, x: Tensor, dim: int) -> Tensor:
    return scan(imp, "logsumexp", x, dim, meta.dtype)


@handles("cummax", "cummin")
def _extreme(imp: Importer, meta: Meta, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Values and the indices at which they stand: the last of equals, a NaN until the next one."""
    kind = "max" if "cummax" in meta.operator else "min"
    return scan(imp, kind, x, dim, x.dtype), scan(imp, f"arg{kind}", x, dim, "int64")
