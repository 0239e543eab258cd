"""Scores of an attention, taken apart: factor * product + summand, with hidden elements beside, at any index."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kforge.engine.calls.attention import LEAST
from kforge.engine.graph.ir import REAL, Buffer, Builder, Expr, walk
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Tensor, linear, unflatten


def probe(tensor: Tensor, index: Index, ready: dict[Tensor, Buffer]) -> Expr:
    """The value at an index with all that would have to be in memory as if it were; what that is goes to `ready`."""
    while True:
        try:
            return Context(Builder(simplify), materialised=dict(ready)).value(tensor, index)
        except Cut as cut:
            name = f"in_memory_{id(cut.tensor)}"  # its own: equal buffers are one to a builder
            ready[cut.tensor] = Buffer(name, cut.tensor.dtype, cut.tensor.shape, "temporary")


def loops_of(shape: tuple[Poly, ...]) -> Index:
    """An index that stands for all of a shape: a loop variable for each size that is not one."""
    return tuple(Poly() if s.constant == 1 else Poly.of(Var(f"x{d}", s)) for d, s in enumerate(shape))


def same_elements(moved: Tensor, tensor: Tensor) -> bool:
    """Whether one is a reshape of the other."""
    stand_in = Buffer("weights", tensor.dtype, tensor.shape, "temporary")
    index = loops_of(moved.shape)
    value = probe(moved, index, {tensor: stand_in})
    return value.op == "load" and value.buffer is stand_in and value.index == linear(index, moved.shape)


@dataclass(frozen=True)
class Scores:
    """factor * product + summand, hidden elements `fill` instead. tensor: the scores themselves."""

    tensor: Tensor
    product: Tensor
    stand_in: Buffer
    factor: float
    summand: Expr | None
    hidden: Expr | None
    fill: float

    @property
    def lead(self) -> tuple[Poly, ...]:
        return self.tensor.shape[:-2]

    def index(self, batch: Poly, head: Poly, row: Poly, column: Poly) -> Index:
        """An index of (batch, heads, queries, keys) as one of the scores."""
        lead = self.lead
        if len(lead) < 2:
            return (*[batch] * len(lead), row, column)
        return (*unflatten(batch, lead[:-1]), head, row, column)

    def parts(self, ctx: Context, index: Index, guard: Guard) -> tuple[Expr | None, Expr | None]:
        """Summand and hidden at an index, for a kernel."""
        inner = replace(ctx, materialised={**ctx.materialised, self.product: self.stand_in}, _memo={})
        parts = take_apart(inner.value(self.tensor, index, guard), self.stand_in, ctx.builder)
        assert parts is not None
        return parts.summand, parts.hidden


def scores_of(x: Tensor) -> Scores | None:
    """The scores of an attention, taken apart."""
    index, ready = loops_of(x.shape), {}  # type: ignore[var-annotated]
    value = probe(x, index, ready)
    for tensor, buffer in ready.items():
        call = tensor.vendor
        if call is None or call.operator not in ("bmm", "mm") or call.scheme:
            continue
        loads = [e for e in walk([value]) if e.op == "load" and e.buffer is buffer]
        if not loads or any(e.index != linear(index, x.shape) for e in loads):
            continue
        parts = take_apart(value, buffer, Builder(simplify))
        if parts is None or parts.factor is None or not parts.factor or not math.isfinite(parts.factor):
            continue
        if parts.hidden is not None and not (parts.fill == -math.inf or parts.fill <= LEAST[tensor.dtype].fill):
            continue
        return Scores(x, tensor, buffer, parts.factor, parts.summand, parts.hidden, parts.fill)
    return None


@dataclass(frozen=True)
class Parts:
    factor: float | None = None
    summand: Expr | None = None
    hidden: Expr | None = None
    fill: float = -math.inf


def take_apart(e: Expr, stand_in: Buffer, b: Builder) -> Parts | None:
    """`e` as hidden ? fill : factor * product + summand; None where it is no such."""
    if all(v.buffer is not stand_in for v in walk([e]) if v.op == "load"):
        return Parts(summand=e)
    if e.op == "load":
        return Parts(1.0)
    if e.op == "where":
        return _without_hidden(e, stand_in, b)
    if e.dtype != REAL or e.op not in ("add", "sub", "mul", "div", "neg"):
        return None
    found = [take_apart(a, stand_in, b) for a in e.args]
    if any(p is None for p in found):
        return None
    left, right = found[0], found[-1]
    assert left is not None and right is not None
    if e.op == "neg":
        return _scaled(left, "mul", -1.0, b)
    if e.op == "mul" and left.factor is None:
        left, right = right, left
    if e.op in ("mul", "div"):
        number = number_of(right.summand) if right.factor is None else None
        return None if number is None or left.factor is None else _scaled(left, e.op, number, b)
    if left.hidden is not None or right.hidden is not None or (left.factor and right.factor):
        return None
    sign = -1.0 if e.op == "sub" else 1.0
    factor = left.factor if right.factor is None else sign * right.factor
    summand = left.summand
    if right.summand is not None:
        second = right.summand if sign > 0 else b.op("neg", right.summand, dtype=REAL)
        summand = second if summand is None else b.op("add", summand, second, dtype=REAL)
    return Parts(factor, summand)


def number_of(e: Expr | None) -> float | None:
    """The number that an expression is, or None."""
    return float(e.value or 0.0) if e is not None and e.op == "const" else None


def _scaled(parts: Parts, op: str, number: float, b: Builder) -> Parts | None:
    """Parts times or over a number; infinite fills stay what they are only where it is positive."""
    if not number or (parts.hidden is not None and (number < 0 or parts.fill != -math.inf)):
        return None
    assert parts.factor is not None
    factor = parts.factor * number if op == "mul" else parts.factor / number
    summand = parts.summand
    if summand is not None:
        summand = b.op(op, summand, b.const(number, REAL), dtype=REAL)
    return replace(parts, factor=factor, summand=summand)


def _without_hidden(e: Expr, stand_in: Buffer, b: Builder) -> Parts | None:
    """where(condition, number, scores), either way round."""
    condition, yes, no = e.args
    if any(v.buffer is stand_in for v in walk([condition]) if v.op == "load"):
        return None
    kept, number, hidden = (no, number_of(yes), condition)
    if number is None:
        kept, number, hidden = yes, number_of(no), b.op("not", condition, dtype="bool")
    parts = take_apart(kept, stand_in, b) if number is not None else None
    if parts is None or number is None or parts.factor is None:
        return None
    if parts.hidden is not None:
        if parts.fill != number:
            return None
        hidden = b.op("or", hidden, parts.hidden, dtype="bool")
    return replace(parts, hidden=hidden, fill=number)
