"""Handlers of the norms that normalise channels: batch norm in training and eval form, instance norm through it.

Torch traces an instance norm as a batch norm over a view with the batch moved into the channels.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

from kforge.engine.graph.importer import Importer, Meta, handles, pick, wide
from kforge.engine.graph.ir import REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, remainder
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor
from kforge.engine.handlers.composites import _affine, _drop, _moments, cast_to, count, op, size_as_real
from kforge.errors import NoCandidate


def _per_channel(imp: Importer, t: Tensor | None, rank: int) -> Tensor | None:
    """A vector over the channels, dimension 1 of `rank`, as a tensor that broadcasts."""
    if t is None or rank == 2:
        return t
    ones = [Poly.of(1)] * (rank - 2)
    return imp.view(t, [t.shape[0], *ones], lambda i: i[:1])


def _channels_only(imp: Importer, t: Tensor) -> Tensor:
    """A kept reduction over all dimensions but the channels as a vector."""
    dims = [d for d in range(len(t.shape)) if d != 1]
    return _drop(imp, t, dims, False)


def _normalised(
    imp: Importer, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: str
) -> Tensor:
    rank = len(x.shape)
    result = op(imp, "mul", op(imp, "sub", x, mean), rstd)
    return _affine(imp, result, _per_channel(imp, weight, rank), _per_channel(imp, bias, rank), dtype)


def _batch_statistics(imp: Importer, x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of each channel over the batch and all places, kept dimensions; one value has no variance."""
    dims = [d for d in range(len(x.shape)) if d != 1]
    imp.at_least(count(x, dims), 2)
    return _moments(imp, x, dims, 0)


def _rstd(imp: Importer, variance: Tensor, eps: float) -> Tensor:
    return op(imp, "rsqrt", op(imp, "add", variance, eps))


@handles("_native_batch_norm_legit_no_training")
def _eval_norm(
    imp: Importer, meta: Meta, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What a channel is multiplied by is one number, which is worked out once."""
    rank, scale = len(x.shape), _rstd(imp, var, eps)
    if weight is not None:
        scale = op(imp, "mul", scale, weight)
    shift, factor = _per_channel(imp, mean, rank), _per_channel(imp, scale, rank)
    assert shift is not None and factor is not None
    return _normalised(imp, x, shift, factor, None, bias, meta.dtype), mean, var


@handles("_native_batch_norm_legit", "native_batch_norm")
def _training_norm(imp: Importer, meta: Meta, x: Tensor, weight: Any, bias: Any, *rest: Any) -> Any:
    """Without running statistics: (x, weight, bias, training, momentum, eps); two Nones may stand for them."""
    if len(rest) == 5 and rest[0] is None and rest[1] is None:
        rest = rest[2:]
    if len(rest) != 3 or rest[0] is not True:
        raise imp.reject("a form that torch's own layers do not use")
    variance, mean = _batch_statistics(imp, x)
    rstd = _rstd(imp, variance, rest[2])
    result = _normalised(imp, x, mean, rstd, weight, bias, meta.dtype)
    return result, _channels_only(imp, mean), _channels_only(imp, rstd)


@handles("_native_batch_norm_legit_functional")
def _tracked_norm(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """The running statistics follow those of the batch; the running variance is the unbiased one."""
    if not training:
        result, mean, var = _eval_norm(imp, meta, x, weight, bias, running_mean, running_var, momentum, eps)
        return result, mean, var, running_mean, running_var
    variance, mean = _batch_statistics(imp, x)
    rstd = _rstd(imp, variance, eps)
    result = _normalised(imp, x, mean, rstd, weight, bias, meta.dtype)

    def unbiased(b: Builder, v: Expr, n: Expr) -> Expr:
        freedom = b.op("sub", n, b.const(1.0, REAL), dtype=REAL)
        return b.op("mul", v, b.op("div", n, freedom, dtype=REAL), dtype=REAL)

    n = size_as_real(count(x, [d for d in range(len(x.shape)) if d != 1]))
    batch_var = imp.map(unbiased, _channels_only(imp, variance), n, dtype="float32", compute=REAL)
    batch_mean = _channels_only(imp, mean)
    new_mean = _followed(imp, running_mean, batch_mean, momentum)
    new_var = _followed(imp, running_var, batch_var, momentum)
    return result, batch_mean, _channels_only(imp, rstd), new_mean, new_var


def _followed(imp: Importer, running: Tensor, batch: Tensor, momentum: float) -> Tensor:
    """running + momentum * (batch - running): one rounding of note, where a sum of two products has three.

    The momentum has a second part for what single precision leaves of it, of the same sign lest infinities cancel. An
    infinite running value stays what it is, and one that is no number keeps its bits.
    """
    high = struct.unpack("f", struct.pack("f", momentum * (1 - 2**-24)))[0]

    def mixed(b: Builder, old: Expr, new: Expr) -> Expr:
        change = b.op("sub", new, old, dtype=REAL)
        step = b.op("mul", b.const(high, REAL), change, dtype=REAL)
        if momentum != high:
            rest = b.op("mul", b.const(momentum - high, REAL), change, dtype=REAL)
            step = b.op("add", step, rest, dtype=REAL)
        left = b.op("mul", b.const(1.0 - momentum, REAL), old, dtype=REAL)
        plain = b.op("add", left, b.op("mul", b.const(momentum, REAL), new, dtype=REAL), dtype=REAL)
        is_wide = b.op("isinf", old, dtype="bool")
        followed = b.op("where", is_wide, plain, b.op("add", old, step, dtype=REAL), dtype=REAL)
        return b.op("where", b.op("isnan", old, dtype="bool"), old, followed, dtype=REAL)

    return imp.map(mixed, running, batch, dtype=running.dtype, compute=REAL)


@handles("copy")
def _copy(imp: Importer, meta: Meta, x: Tensor, source: Tensor, *_: Any) -> Tensor:
    """The new value of x.copy_(source): the source's values in the shape and dtype of x."""
    imp.broadcast([x.shape, source.shape])

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        return ctx.value(source, pick(index, source.shape), guard)

    return cast_to(imp, imp.tensor(x.shape, source.dtype, at, source), x.dtype)


@handles("empty", "empty_permuted", "new_empty", "empty_strided", "new_empty_strided", "empty_like")
def _empty(imp: Importer, meta: Meta, *_: Any, **__: Any) -> Tensor:
    """Memory of a shape, whose values nobody may use: full_like takes its shape alone."""

    def at(ctx: Any, index: Any, guard: Any) -> Expr:
        raise NoCandidate("the reference reads memory that it never wrote", operator="empty")

    return imp.tensor([imp.free_size(n, wide(axis)) for axis, n in enumerate(meta.shape)], meta.dtype, at)


def _times(node: Any, k: int) -> int:
    return int(node.args[1][k])


@handles("repeat")
def _repeat(imp: Importer, meta: Meta, x: Tensor, repeats: Sequence[int]) -> Tensor:
    """As many copies along each dimension; the batch of an instance norm over its weights."""
    lead = len(repeats) - len(x.shape)
    ones = [Poly.of(1)] * lead
    tiled = imp.view(x, [*ones, *x.shape], lambda i: i[lead:]) if lead else x
    if all(n == 1 for n in repeats):
        return tiled
    times = [imp.free_size(int(n), partial(_times, k=k)) for k, n in enumerate(repeats)]
    shape = [size * n for size, n in zip(tiled.shape, times, strict=True)]

    def back(index: tuple[Poly, ...]) -> tuple[Poly, ...]:
        pairs = zip(index, tiled.shape, repeats, strict=True)
        return tuple(i if n == 1 else Poly() if size.constant == 1 else remainder(i, size) for i, size, n in pairs)

    return imp.view(tiled, shape, back)
