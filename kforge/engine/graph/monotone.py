"""Extremes of monotone functions: max(f(x)) is f(max(x)), so that f is computed once a result and not once an element.

Conditions, all of them decided on the expression: f rises (or falls) over everything that its argument can be,
infinities included; its value is NaN where the argument is and nowhere else; a window has at least one element (a
reduction of none is an error in torch); no index of the extreme is wanted beside it, since elements that f makes equal
would have another first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kforge.engine.graph.ir import REAL, Builder, Expr, Program, Reach, walk

MOST = 64  # operators of one function: each of its values is tried as the argument
Made = Callable[[Expr, "tuple[Expr, ...]"], "Expr | None"]


@dataclass(frozen=True)
class Trend:
    """How a value follows another: sign 1 rises, -1 falls, 0 stays; low and high are its least and largest."""

    sign: int
    low: float
    high: float


ANYTHING = (-math.inf, math.inf)
_EVERYWHERE: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "exp2": lambda v: 2.0**v,
    "expm1": math.expm1,
    "sinh": math.sinh,
    "asinh": math.asinh,
    "tanh": math.tanh,
    "atan": math.atan,
    "erf": math.erf,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
}
_FROM: dict[str, tuple[float, Callable[[float], float]]] = {
    "sqrt": (0.0, math.sqrt),
    "log": (0.0, math.log),
    "log2": (0.0, math.log2),
    "log10": (0.0, math.log10),
    "log1p": (-1.0, math.log1p),
}
"""These rise from here on, and are NaN below."""


def extremes_first(b: Builder, program: Program) -> Made:
    """What to make of an expression of `program` whose operands are made: of extremes, what is said above."""
    everything = walk(s.value for s in program.stores)
    arguments = [
        e for e in everything if e.kind.startswith("arg") or (e.window is not None and e.window.flat is not None)
    ]
    indexed = {e.args[0].uid for e in arguments}

    def made(e: Expr, args: tuple[Expr, ...]) -> Expr | None:
        if e.op not in ("reduce", "window") or e.args[0].uid in indexed or e.dtype != REAL:
            return None
        kind, body = (e.kind if e.window is None else e.window.kind), args[0]
        if kind not in ("max", "min") or (e.window is not None and any(map(_may_be_empty, e.window.reaches))):
            return None
        if e.window is None and _own_extreme(kind, body):
            return b.op("sub", body.args[1], body.args[1], dtype=REAL)
        found = argument_of(body)
        if found is None or (found[1] < 0 and e.window is not None):  # windows have no minimum
            return None
        inner, sign = found
        other = {"max": "min", "min": "max"}[kind] if sign < 0 else kind
        extreme = b.reduce(other, inner, REAL) if e.window is None else b.window(e.window, inner, REAL)
        return _with(b, body, inner, extreme)

    return made


def _own_extreme(kind: str, body: Expr) -> bool:
    """x - max(x): its largest is max(x) - max(x), zero or NaN."""
    return (
        body.op == "sub"
        and body.args[1].op == "reduce"
        and body.args[1].kind == kind
        and body.args[1].args[0] is body.args[0]
    )


def _may_be_empty(reach: Reach) -> bool:
    """Whether some window may lie in the padding altogether."""
    before = -next((c for monomial, c in reach.start.terms if not monomial), 0)
    joined = reach.step == 1 and reach.divisor == 1 and before < (reach.tap.size.constant or 0)
    return reach.stretches or (reach.checked and before > 0 and not joined)


def argument_of(body: Expr) -> tuple[Expr, int] | None:
    """The innermost value of which `body` is a monotone function, and the sign of it; None where body is none."""
    order = walk([body], into_reductions=False)
    if len(order) > MOST or body.variables() == frozenset():
        return None
    for inner in order[:-1]:
        if inner.dtype == REAL and inner.op not in ("const", "index", "reduce") and inner.variables():
            trend = _trend(body, inner, _range(inner), {})
            if trend is not None and trend.sign:
                return inner, trend.sign
    return None


def _with(b: Builder, body: Expr, inner: Expr, value: Expr) -> Expr:
    """`body` with `value` in the place of `inner`."""
    memo: dict[int, Expr] = {inner.uid: value}
    for e in walk([body]):
        if e.uid not in memo:
            args = tuple(memo[a.uid] for a in e.args)
            memo[e.uid] = e if args == e.args else b.op(e.op, *args, dtype=e.dtype)
    return memo[body.uid]


def _range(e: Expr) -> tuple[float, float]:
    """Between which numbers a value lies for its form alone."""
    never_negative = e.op in ("abs", "exp", "exp2") or (e.op == "mul" and e.args[0] is e.args[1])
    return (0.0, math.inf) if never_negative else ANYTHING


def _trend(e: Expr, inner: Expr, ends: tuple[float, float], memo: dict[object, Trend | None]) -> Trend | None:
    """How `e` follows `inner` between the ends; None where it is not monotone, or depends on something else."""
    key = (e.uid, ends)
    if key not in memo:
        memo[key] = _worked_out(e, inner, ends, memo)
    return memo[key]


def _worked_out(e: Expr, inner: Expr, ends: tuple[float, float], memo: dict[object, Trend | None]) -> Trend | None:
    if e is inner:
        return Trend(1, *ends)
    if e.op == "const" and e.dtype == REAL:
        value = float(e.value or 0.0)
        return Trend(0, value, value) if math.isfinite(value) else None
    if e.op == "where":
        return _choice(e, inner, ends, memo)
    if e.dtype != REAL or e.op in ("load", "reduce", "window", "scan", "index"):
        return None
    found = [_trend(a, inner, ends, memo) for a in e.args]
    if any(t is None for t in found):
        return None
    known = [t for t in found if t is not None]
    x = known[0]
    if e.op == "neg":
        return Trend(-x.sign, -x.high, -x.low)
    if e.op in _EVERYWHERE:
        return Trend(x.sign, _apply(_EVERYWHERE[e.op], x.low), _apply(_EVERYWHERE[e.op], x.high))
    if e.op in _FROM:
        least, function = _FROM[e.op]
        return Trend(x.sign, _apply(function, x.low), _apply(function, x.high)) if x.low >= least else None
    if len(known) != 2:
        return None
    y = known[1]
    if e.op == "sub":
        return _sum(x, Trend(-y.sign, -y.high, -y.low))
    return {"add": _sum, "mul": _product, "div": _quotient, "max": _larger, "min": _smaller}.get(e.op, _unknown)(x, y)


def _apply(function: Callable[[float], float], value: float) -> float:
    """A rising function at a number or an infinity."""
    try:
        return float(function(value))
    except OverflowError:  # too large for a double, or the integer part of an infinity
        return math.copysign(math.inf, value)
    except ValueError:  # the logarithm of the least number that has one
        return -math.inf


def _unknown(x: Trend, y: Trend) -> Trend | None:
    return None


def _sum(x: Trend, y: Trend) -> Trend | None:
    """Of two that run the same way, unless infinities of both signs might meet."""
    if x.sign * y.sign < 0:
        return None
    if max(x.high, y.high) == math.inf and min(x.low, y.low) == -math.inf and x.sign and y.sign:
        return None
    return Trend(x.sign or y.sign, x.low + y.low, x.high + y.high)


def _product(x: Trend, y: Trend) -> Trend | None:
    """By a number that is not zero."""
    if x.sign == 0:
        x, y = y, x
    factor = y.low
    if y.sign or factor == 0:
        return None
    return (
        Trend(x.sign, factor * x.low, factor * x.high)
        if factor > 0
        else Trend(-x.sign, factor * x.high, factor * x.low)
    )


def _quotient(x: Trend, y: Trend) -> Trend | None:
    """By a number that is not zero; of a number by what is positive throughout."""
    if y.sign == 0:
        return None if y.low == 0 else _product(x, Trend(0, 1 / y.low, 1 / y.low))
    if x.sign or x.low <= 0 or y.low <= 0:
        return None
    return Trend(-y.sign, x.low / y.high, x.low / y.low)


def _larger(x: Trend, y: Trend) -> Trend | None:
    return None if x.sign * y.sign < 0 else Trend(x.sign or y.sign, max(x.low, y.low), max(x.high, y.high))


def _smaller(x: Trend, y: Trend) -> Trend | None:
    return None if x.sign * y.sign < 0 else Trend(x.sign or y.sign, min(x.low, y.low), min(x.high, y.high))


def _choice(e: Expr, inner: Expr, ends: tuple[float, float], memo: dict[object, Trend | None]) -> Trend | None:
    """where(v < bound, f, g): both run the same way, and one begins where the other ends or beyond.

    A NaN of v fails the comparison: what stands there must depend on v.
    """
    test, yes, no = e.args
    if test.op not in ("lt", "le", "gt", "ge") or test.args[1].op != "const":
        return None
    v, bound = test.args[0], float(test.args[1].value or 0.0)
    if not math.isfinite(bound) or v.dtype != REAL:
        return None
    below = test.op in ("lt", "le")  # where `yes` stands
    if v is inner:
        bound = min(max(bound, ends[0]), ends[1])
        low, high = (yes, no) if below else (no, yes)
        first, second = _trend(low, inner, (ends[0], bound), memo), _trend(high, inner, (bound, ends[1]), memo)
        if first is None or second is None or first.sign * second.sign < 0:
            return None
        sign = first.sign or second.sign
        joined = first.high <= second.low if sign > 0 else first.low >= second.high
        if not joined or not (second if below else first).sign:
            return None
        return Trend(sign, min(first.low, second.low), max(first.high, second.high))
    if no is not v or yes.op != "const":
        return None
    limit, trend = float(yes.value or 0.0), _trend(v, inner, ends, memo)
    if trend is None or (limit > bound if below else limit < bound):
        return None
    other = Trend(0, limit, limit)
    return _larger(trend, other) if below and limit == bound else _smaller(trend, other) if limit == bound else None
