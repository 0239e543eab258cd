"""Handlers that decompose composite operators into pointwise operators and reductions over the last dimensions.

The formulas are those of torch's eager kernels: the maximum is subtracted before exp, a variance is the mean of
squared deviations from the mean (never E[x^2] - E[x]^2), a norm scales nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, computing, handles, literal
from kforge.engine.graph.ir import REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, product
from kforge.engine.graph.tensors import Context, Guard, Index, Reduction, Tensor

Dims = int | Sequence[int] | None
SUM_REWRITES: list[Callable[[Importer, Tensor, list[int], str], Tensor | None]] = []
"""(importer, what is summed, dimensions, dtype) -> the same without these dimensions, or None (linear.py)."""


def reduce(imp: Importer, kind: str, x: Tensor, dims: Dims, keepdim: bool, dtype: str) -> Tensor:
    """`kind` over `dims` (None or empty: all). Dimensions that are not last are brought there by a permuted view."""
    rank = len(x.shape)
    over = sorted({d % rank for d in ([dims] if isinstance(dims, int) else dims or range(rank))}) if rank else []
    if not over and kind.startswith("arg"):
        return imp.tensor((), dtype, lambda ctx, i, guard: ctx.builder.const(0, dtype))
    if not over:
        return x
    for d in over:
        if x.shape[d].constant is None and x.shape[d].hint() == 1:
            imp.fix(x.shape[d])
    for rewrite in SUM_REWRITES if kind == "sum" else ():
        if (better := rewrite(imp, x, over, dtype)) is not None:
            return _keep(imp, better, rank, over) if keepdim else better
    if (within := _reduced_already(imp, kind, x, over)) is not None:
        whole = reduce(imp, kind, *within, False, dtype)
        return _keep(imp, whole, rank, over) if keepdim else whole
    lead = [d for d in range(rank) if d not in over]
    order = lead + over
    source = x if order == list(range(rank)) else HANDLERS["permute"](imp, Meta(x.dtype, (), imp.operator), x, order)
    if all(x.shape[d].constant == 1 for d in over):
        shape = [x.shape[d] for d in lead]
        if kind.startswith("arg"):
            small = imp.tensor(shape, dtype, lambda ctx, i, guard: ctx.builder.const(0, dtype))
        else:
            small = imp.view(source, shape, lambda i: (*i, *(Poly() for _ in over)))
        return _keep(imp, small, rank, over) if keepdim else small
    result = imp.tensor([x.shape[d] for d in lead], dtype, lambda ctx, i, guard: ctx.reduced(result, i), source)
    result.reduction = Reduction(kind, source, len(over), () if source is x else tuple(over))
    result.name = f"{kind}"
    return _keep(imp, result, rank, over) if keepdim else result


def _reduced_already(imp: Importer, kind: str, x: Tensor, over: list[int]) -> tuple[Tensor, list[int]] | None:
    """For a sum of sums, or an extreme of extremes, what was reduced first and all dimensions; None for anything else.

    Condition: nothing else wants the first result. A mean of means stays: where the sum of all overflows, it need not.
    """
    first = x.reduction
    alone = [n for n in imp.node.all_input_nodes if imp.values.get(n) is x and len(n.users) == 1]
    if first is None or first.kind != kind or kind not in ("sum", "max", "min") or not alone:
        return None
    source, rank = first.source, len(first.source.shape)
    axes = list(first.axes) or list(range(rank - first.width, rank))
    left = [d for d in range(rank) if d not in axes]
    if first.axes:  # as it was before its dimensions changed places
        back = [(left + axes).index(d) for d in range(rank)]
        source = HANDLERS["permute"](imp, Meta(source.dtype, (), imp.operator), source, back)
    return source, sorted(axes + [left[d] for d in over])


def _keep(imp: Importer, x: Tensor, rank: int, over: list[int]) -> Tensor:
    left = iter(x.shape)
    shape = [Poly.of(1) if d in over else next(left) for d in range(rank)]
    return imp.view(x, shape, lambda i: tuple(v for d, v in enumerate(i) if d not in over))


def count(x: Tensor, dims: Dims) -> Poly:
    """How many elements a reduction of `x` over `dims` takes in."""
    rank = len(x.shape)
    over = {d % rank for d in ([dims] if isinstance(dims, int) else dims or range(rank))} if rank else set()
    return product(x.shape[d] for d in over)


def size_as_real(size: Poly) -> Tensor:
    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        return ctx.builder.cast(ctx.builder.index(size), REAL)

    return Tensor((), "float32", at)


def op(imp: Importer, name: str, *operands: Any, dtype: str = "float32") -> Tensor:
    """One scalar operator, broadcast, computed and kept in floats."""
    return imp.map(lambda b, *s: b.op(name, *s, dtype=REAL), *operands, dtype=dtype, compute=REAL)


def cast_to(imp: Importer, x: Tensor, dtype: str) -> Tensor:
    return imp.map(lambda b, v: v, x, dtype=dtype, compute=computing(x.dtype))


@handles("sum")
def _sum(imp: Importer, meta: Meta, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    return reduce(imp, "sum", x if x.dtype == meta.dtype else cast_to(imp, x, meta.dtype), dim, keepdim, meta.dtype)


@handles("prod")
def _prod(imp: Importer, meta: Meta, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    return reduce(imp, "prod", cast_to(imp, x, meta.dtype), dim, keepdim, meta.dtype)


@handles("mean")
def _mean(imp: Importer, meta: Meta, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    total = reduce(imp, "sum", x, dim, keepdim, meta.dtype)
    return op(imp, "div", total, size_as_real(count(x, dim)), dtype=meta.dtype)


@handles("amax")
def _amax(imp: Importer, meta: Meta, x: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return reduce(imp, "max", x, dim, keepdim, meta.dtype)


@handles("amin")
def _amin(imp: Importer, meta: Meta, x: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return reduce(imp, "min", x, dim, keepdim, meta.dtype)


def _extreme(imp: Importer, meta: Meta, kind: str, x: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Tensor):  # max(x, y)
        return imp.map(lambda b, u, v: b.op(kind, u, v, dtype=u.dtype), x, dim, dtype=meta.dtype)
    values = reduce(imp, kind, x, dim, keepdim, x.dtype)
    return values if dim is None else (values, reduce(imp, f"arg{kind}", x, dim, keepdim, "int64"))


@handles("max")
def _max(imp: Importer, meta: Meta, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(imp, meta, "max", x, dim, keepdim)


@handles("min")
def _min(imp: Importer, meta: Meta, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(imp, meta, "min", x, dim, keepdim)


@handles("argmax", "argmin")
def _arg(imp: Importer, meta: Meta, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    kind = "argmax" if "argmax" in meta.operator else "argmin"
    return reduce(imp, kind, x, dim, keepdim, "int64")


@handles("any", "all")
def _any(imp: Importer, meta: Meta, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """any is the maximum of 0 and 1, all the minimum; of nothing they are false and true, as the sign of what the
    schedules begin with."""
    kind = "max" if ".any" in meta.operator else "min"
    flags = cast_to(imp, cast_to(imp, x, "bool"), "int32")
    found = reduce(imp, kind, flags, dim, keepdim, "int32")
    positive = imp.map(
        lambda b, x: b.op("gt", x, b.const(0, "int32"), dtype="bool"), found, dtype="bool", compute="int32"
    )
    return cast_to(imp, positive, meta.dtype)  # of uint8 the result is uint8


def _moments(imp: Importer, x: Tensor, dims: Dims, correction: float) -> tuple[Tensor, Tensor]:
    """Variance and mean, kept dimensions: the mean first, then the squared deviations from it."""
    n = count(x, dims)
    mean = op(imp, "div", reduce(imp, "sum", x, dims, True, x.dtype), size_as_real(n))
    deviation = op(imp, "sub", x, mean)
    squares = reduce(imp, "sum", op(imp, "mul", deviation, deviation), dims, True, x.dtype)

    def degrees(b: Builder, size: Expr) -> Expr:
        """max(n - correction, 0), as torch."""
        left = b.op("sub", size, b.const(float(correction), REAL), dtype=REAL)
        zero = b.const(0.0, REAL)
        return b.op("where", b.op("lt", left, zero, dtype="bool"), zero, left, dtype=REAL)

    free = size_as_real(n) if correction == 0 else imp.map(degrees, size_as_real(n), dtype="float32", compute=REAL)
    return op(imp, "div", squares, free), mean


def _drop(imp: Importer, x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    if keepdim:
        return x
    rank = len(x.shape)
    over = [d % rank for d in ([dims] if isinstance(dims, int) else dims or range(rank))] if rank else []
    return HANDLERS["squeeze"](imp, Meta("", (), imp.operator), x, over)


@handles("var", "std")
def _var(imp: Importer, meta: Meta, x: Tensor, dim: Dims = None, correction: Any = 1, keepdim: bool = False) -> Tensor:
    variance = _moments(imp, x, dim, 1 if correction is None else correction)[0]
    if ".std" in meta.operator:
        variance = op(imp, "sqrt", variance)
    return cast_to(imp, _drop(imp, variance, dim, keepdim), meta.dtype)


@handles("var_mean")
def _var_mean(
    imp: Importer, meta: Meta, x: Tensor, dim: Dims = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    variance, mean = _moments(imp, x, dim, 1 if correction is None else correction)
    return (
        cast_to(imp, _drop(imp, variance, dim, keepdim), meta.dtype),
        cast_to(imp, _drop(imp, mean, dim, keepdim), meta.dtype),
    )


def _softmax_parts(imp: Importer, x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """x - max, its exp, and the sum of that."""
    shifted = op(imp, "sub", x, reduce(imp, "max", x, dim, True, x.dtype))
    power = op(imp, "exp", shifted)
    return shifted, power, reduce(imp, "sum", power, dim, True, "float32")


@handles("_softmax", "softmax")
def _softmax(imp: Importer, meta: Meta, x: Tensor, dim: int, *unused: Any) -> Tensor:
    _, power, total = _softmax_parts(imp, x, dim)
    return op(imp, "div", power, total, dtype=meta.dtype)


@handles("_safe_softmax")
def _safe_softmax(imp: Importer, meta: Meta, x: Tensor, dim: int, *unused: Any) -> Tensor:
    """A row that is -inf throughout gives zeros."""
    empty = op(imp, "add", reduce(imp, "max", x, dim, True, x.dtype), 0.0)
    _, power, total = _softmax_parts(imp, x, dim)

    def choose(b: Builder, top: Expr, p: Expr, s: Expr) -> Expr:
        nothing = b.op("eq", top, b.const(-math.inf, REAL), dtype="bool")
        return b.op("where", nothing, b.const(0.0, REAL), b.op("div", p, s, dtype=REAL), dtype=REAL)

    return imp.map(choose, empty, power, total, dtype=meta.dtype, compute=REAL)


@handles("_log_softmax", "log_softmax")
def _log_softmax(imp: Importer, meta: Meta, x: Tensor, dim: int, *unused: Any) -> Tensor:
    shifted, _, total = _softmax_parts(imp, x, dim)
    return op(imp, "sub", shifted, op(imp, "log", total), dtype=meta.dtype)


@handles("logsumexp")
def _logsumexp(imp: Importer, meta: Meta, x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """An infinite maximum is not subtracted, so that -inf rows give -inf."""
    top = reduce(imp, "max", x, dim, True, x.dtype)

    def finite(b: Builder, v: Expr) -> Expr:
        return b.op("where", b.op("isinf", v, dtype="bool"), b.const(0.0, REAL), v, dtype=REAL)

    shift = imp.map(finite, top, dtype="float32", compute=REAL)
    total = reduce(imp, "sum", op(imp, "exp", op(imp, "sub", x, shift)), dim, True, "float32")
    return cast_to(imp, _drop(imp, op(imp, "add", op(imp, "log", total), shift), dim, keepdim), meta.dtype)


def _affine(imp: Importer, x: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: str) -> Tensor:
    if weight is not None:
        x = op(imp, "mul", x, weight)
    if bias is not None:
        x = op(imp, "add", x, bias)
    return cast_to(imp, x, dtype)


@handles("native_layer_norm")
def _layer_norm(
    imp: Importer, meta: Meta, x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    variance, mean = _moments(imp, x, dims, 0)
    rstd = op(imp, "rsqrt", op(imp, "add", variance, eps))
    normed = op(imp, "mul", op(imp, "sub", x, mean), rstd)
    return _affine(imp, normed, weight, bias, meta.dtype), mean, rstd


@handles("native_group_norm")
def _group_norm(
    imp: Importer, meta: Meta, x: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    imp.fix(x.shape[1])
    rest = x.shape[2:]
    view = HANDLERS["view"]
    hints = tuple(s.hint() for s in rest)
    split = view(
        imp, Meta(x.dtype, (n, groups, c // groups, *hints), imp.operator), x, [n, groups, c // groups, *hints]
    )
    dims = tuple(range(2, len(split.shape)))
    variance, mean = _moments(imp, split, dims, 0)
    rstd = op(imp, "rsqrt", op(imp, "add", variance, eps))
    normed = op(imp, "mul", op(imp, "sub", split, mean), rstd)

    def per_channel(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        shape = (groups, c // groups, *(1 for _ in rest))
        return view(imp, Meta(t.dtype, shape, imp.operator), t, list(shape))

    result = _affine(imp, normed, per_channel(weight), per_channel(bias), meta.dtype)
    back = view(imp, Meta(meta.dtype, (n, c, *hints), imp.operator), result, [n, c, *hints])
    return back, _drop(imp, mean, dims, False), _drop(imp, rstd, dims, False)


@handles("rms_norm", "_fused_rms_norm")
def _rms_norm(
    imp: Importer, meta: Meta, x: Tensor, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    dims = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    limits = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
    mean = op(imp, "div", reduce(imp, "sum", op(imp, "mul", x, x), dims, True, x.dtype), size_as_real(count(x, dims)))
    rstd = op(imp, "rsqrt", op(imp, "add", mean, limits[x.dtype] if eps is None else eps))
    result = _affine(imp, op(imp, "mul", x, rstd), weight, None, meta.dtype)
    return (result, rstd) if "_fused" in meta.operator else result


@handles("linalg_vector_norm", "norm")
def _norm(
    imp: Importer, meta: Meta, x: Tensor, p: Any = 2, dim: Dims = None, keepdim: bool = False, **_: Any
) -> Tensor:
    order = 2.0 if p is None else float(p)
    size = op(imp, "abs", x)
    if math.isinf(order):
        return cast_to(imp, reduce(imp, "max" if order > 0 else "min", size, dim, keepdim, meta.dtype), meta.dtype)
    if order == 0:
        nonzero = imp.map(lambda b, v: b.op("ne", v, b.const(0.0, REAL), dtype="bool"), x, dtype="bool", compute=REAL)
        return reduce(imp, "sum", cast_to(imp, nonzero, meta.dtype), dim, keepdim, meta.dtype)
    if order == 1:
        return reduce(imp, "sum", size, dim, keepdim, meta.dtype)
    if order == 2:
        return op(imp, "sqrt", reduce(imp, "sum", op(imp, "mul", x, x), dim, keepdim, meta.dtype), dtype=meta.dtype)
    total = reduce(imp, "sum", op(imp, "pow", size, order), dim, keepdim, meta.dtype)
    return op(imp, "pow", total, 1.0 / order, dtype=meta.dtype)


@handles("mse_loss")
def _mse_loss(imp: Importer, meta: Meta, x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    gap = op(imp, "sub", x, y)
    square = op(imp, "mul", gap, gap, dtype=meta.dtype)
    if reduction == 0:
        return square
    total = reduce(imp, "sum", square, None, False, meta.dtype)
    return total if reduction == 2 else op(imp, "div", total, size_as_real(product(square.shape)), dtype=meta.dtype)


@handles("constant_pad_nd")
def _pad(imp: Importer, meta: Meta, x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Outside the source nothing is read."""
    rank = len(x.shape)
    before = [0] * rank
    after = [0] * rank
    for k in range(len(pad) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    for size, lo, hi in zip(x.shape, before, after, strict=True):
        imp.at_least(size, -min(lo, hi, lo + hi))
    shape = [s + (lo + hi) for s, lo, hi in zip(x.shape, before, after, strict=True)]

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        inside: Expr | None = None
        for i, size, lo, hi in zip(index, x.shape, before, after, strict=True):
            tests = [b.op("ge", b.index(i), b.const(lo, "int64"), dtype="bool")] if lo > 0 else []
            tests += [b.op("lt", b.index(i), b.index(size + lo), dtype="bool")] if hi > 0 else []
            for test in tests:
                inside = test if inside is None else b.op("and", inside, test, dtype="bool")
        own = tuple(i - lo for i, lo in zip(index, before, strict=True))
        if inside is None:
            return ctx.value(x, own, guard)
        both = inside if guard is None else b.op("and", guard, inside, dtype="bool")
        fill = literal(ctx, value, computing(meta.dtype))
        return b.op("where", inside, ctx.value(x, own, both), fill, dtype=fill.dtype)

    return imp.tensor(shape, meta.dtype, at, x)
