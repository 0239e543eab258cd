"""Rules for logarithms: forms that need one short function where torch's need one or two long ones.

Kernels of losses are bound by instructions, not by memory, where each element takes two of CUDA's logarithms (25
instructions each; log1pf has 33). The device functions are in templates/cuda/special_helpers.cu.j2, with their errors.
"""

from __future__ import annotations

import math

from kforge.engine.graph.ir import REAL, Builder, Expr, walk
from kforge.engine.graph.rewrite import rule


def softplus_of(e: Expr) -> Expr | None:
    """x of log(1 + e^x), in either of its forms."""
    if e.op == "log1p" and e.args[0].op == "exp":
        return e.args[0].args[0]
    if e.op == "add" and e.args[0].op == "max" and e.args[1].op == "log1p_unit":
        x = e.args[0].args[0]
        return x if e.args[1].args[0].op == "exp" and _size_of(e.args[1].args[0].args[0]) is x else None
    return None


def softplus(b: Builder, x: Expr) -> Expr:
    """log(1 + e^x) as max(x, 0) + log(1 + e^-|x|): it does not overflow, and its second term is short."""
    low = b.op("neg", b.op("abs", x, dtype=REAL), dtype=REAL)
    rest = b.op("log1p", b.op("exp", low, dtype=REAL), dtype=REAL)
    return b.op("add", b.op("max", x, b.const(0.0, REAL), dtype=REAL), rest, dtype=REAL)


@rule
def tanh_of_softplus(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """tanh(log(1 + e^x)) is t / (t + 2), t = e^2x + 2 e^x: one exponential instead of three functions, as in Mish.

    Above 20 it is one, in double precision, too; that is where t is on its way to overflow. Its error is that of the
    three for x > 0, and 1.3 to 1.5 of theirs where x is below -1: RMS, in single precision on a CPU.
    """
    if op != "tanh":
        return None
    inner, given = args[0], None
    if inner.op == "where" and inner.args[0].op == "gt" and inner.args[0].args[0] is inner.args[1]:
        limit = inner.args[0].args[1]
        if limit.op != "const" or float(limit.value or 0.0) < 20:
            return None
        inner, given = inner.args[2], inner.args[1]
    x = softplus_of(inner)
    if x is None or (given is not None and given is not x):
        return None
    two, power = b.const(2.0, REAL), b.op("exp", x, dtype=REAL)
    t = b.op("add", b.op("mul", power, power, dtype=REAL), b.op("mul", two, power, dtype=REAL), dtype=REAL)
    large = b.op("gt", x, b.const(20.0, REAL), dtype="bool")
    quotient = b.op("div", t, b.op("add", t, two, dtype=REAL), dtype=REAL)
    return b.op("where", large, b.const(1.0, REAL), quotient, dtype=REAL)


@rule
def log1p_of_at_most_one(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """log(1 + e^-|x|) needs no logarithm of numbers above 2."""
    if op != "log1p" or args[0].op != "exp" or _size_of(args[0].args[0]) is None:
        return None
    return b.op("log1p_unit", args[0], dtype=dtype)


def x_log_y(b: Builder, x: Expr, y: Expr) -> Expr:
    """x log y, 0 where x is 0, NaN where y is NaN. There the logarithm is of 1, so that no thread goes a way alone."""
    if x is y:
        return b.op("x_log_x", x, dtype=REAL)
    at_zero = b.op("eq", x, b.const(0.0, REAL), dtype="bool")
    log = b.op("log", b.op("where", at_zero, b.const(1.0, REAL), y, dtype=REAL), dtype=REAL)
    return b.op("where", b.op("isnan", y, dtype="bool"), y, b.op("mul", x, log, dtype=REAL), dtype=REAL)


@rule
def chosen_x_log_y(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """The form of xlogy in graphs: where y is NaN that, where x is 0 that, else x log y."""
    if op != "where" or args[0].op != "isnan" or not (args[1].op == "const" and math.isnan(float(args[1].value or 0))):
        return None
    inner, y = args[2], args[0].args[0]
    if inner.op != "where" or inner.args[0].op != "eq" or inner.args[1].op != "const" or inner.args[2].op != "mul":
        return None
    x, zero = inner.args[0].args
    same = inner.args[2].args[0] is x and inner.args[2].args[1].op == "log" and inner.args[2].args[1].args[0] is y
    return x_log_y(b, x, y) if same and zero.op == "const" and zero.value == inner.args[1].value == 0 else None


@rule
def difference_of_logarithms(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """log a - log b is the logarithm of a quotient and of what rounding took from it; t log t - t log b likewise.

    Not for the logarithm of a whole row's value, which is there once; where a quotient leaves the range of normal
    numbers both logarithms are taken.
    """
    if op != "sub" or dtype != REAL:
        return None
    left, right = args
    if left.op == right.op == "log" and not _of_row(left) and not _of_row(right):
        return b.op("log_ratio", left.args[0], right.args[0], dtype=REAL)
    if left.op == "x_log_x" and right.op == "mul" and not _of_row(right):
        t = left.args[0]
        log = next((y for x, y in (right.args, right.args[::-1]) if x is t and y.op == "log"), None)
        if log is not None:
            return b.op("divergence", t, log.args[0], dtype=REAL)
    return None


def _of_row(e: Expr) -> bool:
    return any(below.op == "reduce" for below in walk([e]))


def _size_of(e: Expr) -> Expr | None:
    """x of -|x|."""
    return e.args[0].args[0] if e.op == "neg" and e.args[0].op == "abs" else None
