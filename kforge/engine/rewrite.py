"""Algebraic rules on expressions, applied as they are built. Each rule states its condition; none changes a NaN.

A rule is a function (builder, op, args, dtype) -> expression or None, registered with @rule. Rules may only replace
an expression by one that is at least as accurate; x + 0 stays (it turns -0.0 into 0.0), x * 0 stays (NaN, infinity).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kforge.engine.ir import INTEGERS, REAL, Builder, Expr

Rule = Callable[[Builder, str, "tuple[Expr, ...]", str], "Expr | None"]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    RULES[function.__name__] = function
    return function


def simplify(builder: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """The first rule that applies wins."""
    for apply in RULES.values():
        better = apply(builder, op, args, dtype)
        if better is not None:
            return better
    return None


def _is(expr: Expr, value: float) -> bool:
    return expr.op == "const" and expr.value == value and not isinstance(expr.value, bool)


@rule
def fold_constants(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """Casts, negation, and + - * of constants where the result is exact or computed in double."""
    if not args or any(a.op != "const" for a in args):
        return None
    values = [a.value for a in args]
    if any(v is None or (isinstance(v, float) and not math.isfinite(v)) for v in values) and op != "neg":
        return None
    if op == "cast" and (dtype == REAL or dtype in INTEGERS or dtype == "bool"):
        v = values[0]
        return b.const(float(v) if dtype == REAL else bool(v) if dtype == "bool" else int(v), dtype)  # type: ignore[arg-type]
    if op == "neg":
        return b.const(-values[0], dtype)  # type: ignore[operator]
    if dtype in INTEGERS and op in {"add", "sub", "mul"}:
        x, y = int(values[0]), int(values[1])  # type: ignore[arg-type]
        return b.const({"add": x + y, "sub": x - y, "mul": x * y}[op], dtype)
    return None


@rule
def drop_unit(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """x * 1, 1 * x, x / 1, x - 0 are x, bit for bit; so is x ** 1."""
    if op == "mul" and _is(args[0], 1):
        return args[1]
    if op in {"mul", "div", "pow"} and _is(args[1], 1) and args[0].dtype == dtype:
        return args[0]
    if op == "sub" and _is(args[1], 0) and not str(args[1].value).startswith("-"):
        return args[0]
    return None


@rule
def drop_double_cast(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """A cast there and back through a wider type is no cast: bool or a narrower integer through int64."""
    if op != "cast" or args[0].op != "cast":
        return None
    inner = args[0].args[0]
    widths = {"bool": 0, "uint8": 1, "int8": 1, "int16": 2, "int32": 3, "int64": 4}
    if inner.dtype == dtype and widths.get(inner.dtype, 9) < widths.get(args[0].dtype, -1):
        return inner
    return None


@rule
def drop_double_negation(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """-(-x) is x; not (not p) is p."""
    if op in {"neg", "not"} and args[0].op == op and args[0].dtype == dtype:
        return args[0].args[0]
    return None


@rule
def negated_comparison(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """not (i < n) is i >= n for integers; for floats it is not, because of NaN."""
    opposite = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
    inner = args[0] if args else None
    if op != "not" or inner is None or inner.op not in opposite or any(a.dtype == REAL for a in inner.args):
        return None
    return b.op(opposite[inner.op], *inner.args, dtype="bool")


@rule
def power_by_products(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """x ** n for n in 2, 3, -1, -2, 0.5, -0.5, 0 as torch computes it."""
    if op != "pow" or args[1].op != "const" or dtype != REAL:
        return None
    x, n = args[0], args[1].value
    if n == 2:
        return b.op("mul", x, x, dtype=dtype)
    if n == 3:
        return b.op("mul", b.op("mul", x, x, dtype=dtype), x, dtype=dtype)
    if n == 0.5:
        return b.op("sqrt", x, dtype=dtype)
    if n == -0.5:
        return b.op("rsqrt", x, dtype=dtype)
    if n == -1:
        return b.op("div", b.const(1.0, REAL), x, dtype=dtype)
    if n == -2:
        return b.op("div", b.const(1.0, REAL), b.op("mul", x, x, dtype=dtype), dtype=dtype)
    if n == 0:
        return b.const(1.0, REAL)
    return None


@rule
def known_choice(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """where(p, x, x) is x; where(true, x, y) is x."""
    if op != "where":
        return None
    if args[1] is args[2]:
        return args[1]
    if args[0].op == "const":
        return args[1] if args[0].value else args[2]
    return None


@rule
def scale_of_scale(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """(x * a) * b is x * (a b) when both constants and their product are powers of two, hence exact."""
    if op != "mul" or dtype != REAL or args[1].op != "const" or args[0].op != "mul":
        return None
    inner = args[0].args[1]
    if inner.op != "const":
        return None
    x, y = float(inner.value or 0.0), float(args[1].value or 0.0)
    if x and y and all(abs(math.frexp(v)[0]) == 0.5 and 2.0**-30 < abs(v) < 2.0**30 for v in (x, y)):
        return b.op("mul", args[0].args[0], b.const(x * y, REAL), dtype=dtype)
    return None
