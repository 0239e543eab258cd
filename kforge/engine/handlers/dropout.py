"""Handlers of the random operators: dropout in training form and the draws that torch's other dropouts are made of.

Each operator has a pair of numbers of its own, drawn on the device from torch's generator by `kforge.kernel.philox`;
element i of its result takes number i of the stream that the pair stands for, wherever a kernel computes it.
"""

from __future__ import annotations

from typing import Any

from kforge.engine.graph.importer import Importer, Meta, computing, handles
from kforge.engine.graph.ir import REAL, Buffer, Expr
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor, linear

SEED = "seed"  # kind of a buffer that forward draws
PAIR = (Poly.of(2),)


def _seed(imp: Importer, shape: tuple[Poly, ...]) -> Buffer:
    """A pair for one operator, under a name that no input has."""
    taken = {name for name, _ in imp.sources.values()} | {b.name for b in imp.seeds}
    name, k = "seed", 2
    while name in taken:
        name, k = f"seed_{k}", k + 1
    buffer = Buffer(name, "int64", PAIR, SEED)
    imp.seeds[buffer] = shape
    return buffer


def _kept(imp: Importer, shape: tuple[Poly, ...], rate: float) -> Tensor:
    """True with probability `rate`, drawn for each element."""
    seed = _seed(imp, shape)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        key, offset = b.load(seed, Poly()), b.load(seed, Poly.of(1))
        number = b.op("draw", key, offset, b.index(linear(index, shape)), dtype=REAL)
        return b.op("lt", number, b.const(rate, REAL), dtype="bool")

    return imp.tensor(shape, "bool", at)


@handles("native_dropout")
def _dropout(imp: Importer, meta: Meta, x: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:
    """x * mask / (1 - p), in this order as torch has it: a NaN that is dropped stays one."""
    if train is False:
        whole = imp.tensor(x.shape, "bool", lambda ctx, i, guard: ctx.builder.const(True, "bool"))
        return imp.view(x, x.shape, lambda i: i), whole
    mask = _kept(imp, x.shape, 1.0 - p)
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    result = imp.map(
        lambda b, v, m: b.op("mul", b.op("mul", v, m, dtype=REAL), b.const(scale, REAL), dtype=REAL),
        x,
        mask,
        dtype=meta.dtype,
        compute=REAL,
    )
    return result, mask


@handles("bernoulli")
def _bernoulli(imp: Importer, meta: Meta, x: Tensor, p: Any = None, **_: Any) -> Tensor:
    """1 with probability p, else 0, in the shape of x; the values of x are not looked at."""
    if not isinstance(p, float):
        raise imp.reject("a probability for each element")
    if any(size.constant == 1 for size in x.shape):
        raise imp.reject("a draw for a whole channel, which the judge takes for elements that are drawn alike")
    mask = _kept(imp, x.shape, p)
    return imp.map(lambda b, m: m, mask, dtype=meta.dtype, compute=computing(meta.dtype))
