"""Algebraic rules on expressions, applied as they are built. Each rule states its condition; none changes a NaN.

A rule is a function (builder, op, args, dtype) -> expression or None, registered with @rule. Rules may only replace
an expression by one that is at least as accurate; x + 0 stays (it turns -0.0 into 0.0), x * 0 stays (NaN, infinity).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kforge.engine.graph.ir import INTEGERS, REAL, Builder, Expr
from kforge.engine.graph.symbols import (
    Poly,
    Remainder,
    Size,
    Var,
    counts_up,
    largest,
    never_negative,
    product,
    remainder,
)

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
def known_comparison(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """i < n is false and i >= n true of integers that cannot be less; |x| < 0 is false of a NaN, too."""
    if op not in ("lt", "ge"):
        return None
    x, y = args
    if x.dtype == REAL:
        return b.const(False, "bool") if op == "lt" and _is(y, 0) and _never_negative(x) else None
    first, second = _as_index(x), _as_index(y)
    if first is not None and second is not None and counts_up(first - second):
        return b.const(op == "ge", "bool")
    least = _least(x)
    return b.const(op == "ge", "bool") if y.op == "const" and least is not None and least >= int(y.value or 0) else None


def _as_index(e: Expr) -> Poly | None:
    return Poly.of(int(e.value or 0)) if e.op == "const" else e.index if e.op == "index" else None


def _least(e: Expr) -> int | None:
    """What an integer cannot be below, where numbers, indices and clamps say so."""
    if e.op == "const":
        return int(e.value or 0)
    if e.op == "index" and e.index is not None and counts_up(e.index):
        return 0
    if e.op != "where":
        return None
    test, *choices = e.args
    bounds = [_least(choice) for choice in choices]
    if test.op in ("lt", "le") and test.args == (choices[1], choices[0]):  # x < low ? low : x
        return bounds[0]
    return None if bounds[0] is None or bounds[1] is None else min(bounds[0], bounds[1])


@rule
def scale_of_scale(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """(x * a) * b is x * (a b): where both are powers of two, hence exact; else where |a| is at most 1.

    With a larger a the first product might overflow and the second undo it; with a smaller one nothing can, and two
    roundings become one and that of the constant.
    """
    if op != "mul" or dtype != REAL:
        return None
    inner, outer = _scaled(args)
    if inner is None or inner.op != "mul":
        return None
    x, first = _scaled(inner.args)
    if x is None:
        return None
    u, v = float(first or 0.0), float(outer or 0.0)
    if not u or not v or not 2.0**-30 < abs(u * v) < 2.0**30 or not 2.0**-30 < abs(u) < 2.0**30:
        return None
    if (_power_of_two(u) and _power_of_two(v)) or (abs(u) <= 1 and abs(v) <= 1):
        return b.op("mul", x, b.const(u * v, REAL), dtype=dtype)
    return None


def _scaled(args: tuple[Expr, ...]) -> tuple[Expr | None, float | int | bool | None]:
    """A product's factor that is no constant, and the other that is one."""
    for x, c in (args, args[::-1]):
        if c.op == "const" and x.op != "const":
            return x, c.value
    return None, None


def _power_of_two(value: float) -> bool:
    return value != 0 and math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5


@rule
def divide_by_power_of_two(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """x / 2^k is x * 2^-k, bit for bit, and a product is far cheaper than a quotient."""
    if op != "div" or dtype != REAL or args[1].op != "const" or args[0].op == "reduce":
        return None  # a mean stays a quotient of its sum: merging.py knows it by that
    value = float(args[1].value or 0.0)
    if _power_of_two(value) and 2.0**-100 < abs(value) < 2.0**100:
        return b.op("mul", args[0], b.const(1.0 / value, REAL), dtype=dtype)
    return None


@rule
def signs(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """x - (-y) is x + y, x + (-y) is x - y, (-x) * (-y) is x * y, |-x| is |x|: all exact."""
    if dtype != REAL:
        return None
    if op == "abs" and args[0].op == "neg":
        return b.op("abs", args[0].args[0], dtype=dtype)
    if op in {"add", "sub"} and args[1].op == "neg":
        return b.op("sub" if op == "add" else "add", args[0], args[1].args[0], dtype=dtype)
    if op in {"mul", "div"} and all(a.op == "neg" for a in args):
        return b.op(op, args[0].args[0], args[1].args[0], dtype=dtype)
    return None


@rule
def repeated(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """Applied twice it does no more: relu, clamps, absolute values, roundings."""
    if op in {"abs", "floor", "ceil", "trunc", "round"} and args[0].op == op:
        return args[0]
    if op == "where" and args[0].op in {"lt", "gt"} and args[2].op == "where" and args[2].args[0].op == args[0].op:
        inner = args[2]
        same = args[0].args[1] is args[1] and inner.args[0].args[1] is args[1] and inner.args[1] is args[1]
        if same and args[1].op == "const" and args[0].args[0] is inner and inner.args[0].args[0] is inner.args[2]:
            return inner
    return None


@rule
def square_of_root(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """The square of a norm is the sum under its root: exact where that cannot be negative."""
    if op != "mul" or args[0] is not args[1] or args[0].op != "sqrt":
        return None
    inner = args[0].args[0]
    if inner.op == "reduce" and inner.kind == "sum" and _never_negative(inner.args[0]):
        return inner
    return inner if _never_negative(inner) else None


def _never_negative(e: Expr) -> bool:
    """True of squares, absolute values and exponentials."""
    return e.op in ("abs", "exp", "exp2") or (e.op == "mul" and e.args[0] is e.args[1])


@rule
def index_arithmetic(b: Builder, op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """Sums, products and remainders of indices are indices; a remainder where neither side can be negative."""
    if dtype != "int64" or op not in {"add", "sub", "mul", "rest"} or any(a.op not in ("index", "const") for a in args):
        return None
    x, y = (a.index if a.index is not None else Poly.of(int(a.value or 0)) for a in args)
    if op == "rest":
        if (y.constant or 0) <= 0 or any(c < 0 for _, c in x.terms):
            return None
        rest, top = remainder(x, y), largest(x)
        if top is not None:  # a size that only a literal gives is that literal
            top = top.substitute({a: Poly.of(a.hint) for a in top.atoms() if repr(a).startswith("free_")})  # type: ignore[union-attr]
        if any(isinstance(a, Remainder) for a in rest.atoms()) and top is not None and never_negative(y * 2 - 1 - top):
            below = b.op("lt", b.index(x), b.index(y), dtype="bool")  # once around at most: no division
            return b.op("where", below, b.index(x), b.index(x - y), dtype=dtype)
        return b.index(rest)
    return b.index({"add": x + y, "sub": x - y, "mul": x * y}[op])


def without_columns(b: Builder, kind: str, body: Expr, cols: tuple[Var, ...]) -> Expr | None:
    """A reduction of values that are all the same: a sum is a product with their number, an extreme the value itself.

    Conditions: the number is known to be positive for extremes; where it may be zero the sum is chosen to be zero,
    since zero times NaN is none. Products stay: their rounding is another.
    """
    if not cols or any(v in cols for v in body.variables()) or kind not in ("sum", "max", "min"):
        return None
    number = product(v.size for v in cols)  # a size that only a literal gives is that literal
    given = {a: Poly.of(a.hint) for a in number.atoms() if isinstance(a, Size) and a.name.startswith("free_")}
    number = number.substitute(given)  # type: ignore[arg-type]
    if kind != "sum":
        return body if (number.constant or 0) > 0 else None
    if body.dtype not in (REAL, "int64") or number.constant == 0:
        return None
    total = b.op("mul", body, b.cast(b.index(number), body.dtype), dtype=body.dtype)
    if number.constant is not None:
        return total
    none = b.op("eq", b.index(number), b.const(0, "int64"), dtype="bool")
    return b.op("where", none, b.cast(b.const(0, "int64"), body.dtype), total, dtype=body.dtype)
