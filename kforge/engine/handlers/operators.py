"""Pointwise ATen operators as scalar expressions, in torch's own formulas; and how each one is written in C.

`POINTWISE` maps an ATen name (without overload) to a function (builder, *scalars) -> expression. `C_REAL` maps an
expression's operator to a C template in which {f} is "f" for float and "" for double.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kforge.engine.graph.ir import INTEGERS, REAL, Builder, Expr
from kforge.engine.graph.logarithms import softplus, x_log_y
from kforge.errors import NoCandidate

_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc floor ceil trunc"
)
C_REAL = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "and": "{0} && {1}",
    "or": "{0} || {1}",
    "not": "!{0}",
    "bitand": "{0} & {1}",
    "bitor": "{0} | {1}",
    "bitxor": "{0} ^ {1}",
    "bitnot": "~{0}",
    "shl": "{0} << {1}",
    "shr": "{0} >> {1}",
    "where": "{0} ? {1} : {2}",
    "isnan": "isnan({0})",
    "isinf": "isinf({0})",
    "max": "larger({0}, {1})",
    "min": "smaller({0}, {1})",
    "pow": "pow{f}({0}, {1})",
    "fmod": "fmod{f}({0}, {1})",
    "draw": "draw({0}, {1}, {2})",
    "quotient": "{0} / {1}",
    "rest": "{0} % {1}",
    "atan2": "atan2{f}({0}, {1})",
    "abs": "fabs{f}({0})",
    "round": "rint{f}({0})",
    "to_float8_e4m3fn": "float(eight_bits<__nv_fp8_e4m3>({0}))",
    "to_float8_e5m2": "float(eight_bits<__nv_fp8_e5m2>({0}))",
    **{name: name + "{f}({0})" for name in _FUNCTIONS.split()},
}
"""max and min are NaN-propagating helpers of the generated source; abs of an integer is written by the printer."""

PRECEDENCE = {
    "where": 1,
    "or": 2,
    "and": 3,
    "bitor": 4,
    "bitxor": 5,
    "bitand": 6,
    "eq": 7,
    "ne": 7,
    "lt": 8,
    "le": 8,
    "gt": 8,
    "ge": 8,
    "shl": 9,
    "shr": 9,
    "add": 10,
    "sub": 10,
    "mul": 11,
    "div": 11,
    "quotient": 11,
    "rest": 11,
    "neg": 12,
    "not": 12,
    "bitnot": 12,
}

Formula = Callable[..., Expr]
POINTWISE: dict[str, Formula] = {}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}


def operator(*names: str) -> Callable[[Formula], Formula]:
    def register(function: Formula) -> Formula:
        for name in names:
            POINTWISE[name] = function
        return function

    return register


def _same_type(name: str) -> Formula:
    return lambda b, *args: b.op(name, *args, dtype=args[0].dtype)


for _name in ("mul", "neg", "atan2"):
    POINTWISE[_name] = _same_type(_name)
for _name in C_REAL:
    if C_REAL[_name] == _name + "{f}({0})" or _name == "round":
        POINTWISE[_name] = _same_type(_name)
POINTWISE["maximum"] = _same_type("max")
POINTWISE["minimum"] = _same_type("min")
for _name in COMPARISONS:
    POINTWISE[_name] = lambda b, x, y, _n=_name: b.op(_n, x, y, dtype="bool")


def _real(b: Builder, value: float) -> Expr:
    return b.const(value, REAL)


def _choose(b: Builder, condition: Expr, yes: Expr, no: Expr) -> Expr:
    return b.op("where", condition, yes, no, dtype=yes.dtype)


@operator("abs")
def _abs(b: Builder, x: Expr) -> Expr:
    return x if x.dtype in {"bool", "uint8"} else b.op("abs", x, dtype=x.dtype)


@operator("add")
def _add(b: Builder, x: Expr, y: Expr, alpha: Expr | None = None) -> Expr:
    if x.dtype == "bool":
        return b.op("or", x, y, dtype="bool")
    if alpha is not None:
        y = b.op("mul", y, alpha, dtype=y.dtype)
    return b.op("add", x, y, dtype=x.dtype)


@operator("sub")
def _sub(b: Builder, x: Expr, y: Expr, alpha: Expr | None = None) -> Expr:
    if alpha is not None:
        y = b.op("mul", y, alpha, dtype=y.dtype)
    return b.op("sub", x, y, dtype=x.dtype)


@operator("rsub")
def _rsub(b: Builder, x: Expr, y: Expr, alpha: Expr | None = None) -> Expr:
    return _sub(b, y, x, alpha)


@operator("round")
def _round(b: Builder, x: Expr, decimals: int = 0) -> Expr:
    if decimals:
        raise NoCandidate("the engine has no kernel for rounding to decimals", operator="round")
    return b.op("round", x, dtype=x.dtype)


@operator("reciprocal")
def _reciprocal(b: Builder, x: Expr) -> Expr:
    return b.op("div", _real(b, 1.0), x, dtype=REAL)


@operator("square")
def _square(b: Builder, x: Expr) -> Expr:
    return b.op("mul", x, x, dtype=x.dtype)


@operator("where")
def _where(b: Builder, condition: Expr, yes: Expr, no: Expr) -> Expr:
    return _choose(b, condition, yes, no)


@operator("masked_fill")
def _masked_fill(b: Builder, x: Expr, mask: Expr, value: Expr) -> Expr:
    return _choose(b, mask, value, x)


@operator("logical_and", "bitwise_and", "__and__")
def _and(b: Builder, x: Expr, y: Expr) -> Expr:
    return b.op("and" if x.dtype == "bool" else "bitand", x, y, dtype=x.dtype)


@operator("logical_or", "bitwise_or", "__or__")
def _or(b: Builder, x: Expr, y: Expr) -> Expr:
    return b.op("or" if x.dtype == "bool" else "bitor", x, y, dtype=x.dtype)


@operator("logical_xor", "bitwise_xor")
def _xor(b: Builder, x: Expr, y: Expr) -> Expr:
    return b.op("ne" if x.dtype == "bool" else "bitxor", x, y, dtype=x.dtype)


@operator("logical_not", "bitwise_not")
def _not(b: Builder, x: Expr) -> Expr:
    return b.op("not" if x.dtype == "bool" else "bitnot", x, dtype=x.dtype)


@operator("isnan")
def _isnan(b: Builder, x: Expr) -> Expr:
    return b.op("isnan", x, dtype="bool")


@operator("isinf")
def _isinf(b: Builder, x: Expr) -> Expr:
    return b.op("isinf", x, dtype="bool")


@operator("relu")
def _relu(b: Builder, x: Expr) -> Expr:
    """x < 0 ? 0 : x keeps NaN."""
    zero = b.cast(b.const(0, "int64"), x.dtype)
    return _choose(b, b.op("lt", x, zero, dtype="bool"), zero, x)


@operator("clamp", "hardtanh", "clip")
def _clamp(b: Builder, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    """NaN of x stays because both comparisons are false on it; tensor bounds propagate theirs through max and min."""
    for bound, op in ((low, "lt"), (high, "gt")):
        if bound is None:
            continue
        if bound.op == "const" and bound.value == bound.value:
            x = _choose(b, b.op(op, x, bound, dtype="bool"), bound, x)
        else:
            x = b.op("max" if op == "lt" else "min", x, bound, dtype=x.dtype)
    return x


@operator("clamp_min")
def _clamp_min(b: Builder, x: Expr, low: Expr) -> Expr:
    return _clamp(b, x, low, None)


@operator("clamp_max")
def _clamp_max(b: Builder, x: Expr, high: Expr) -> Expr:
    return _clamp(b, x, None, high)


@operator("sign", "sgn")
def _sign(b: Builder, x: Expr) -> Expr:
    zero = b.cast(b.const(0, "int64"), x.dtype)
    one = b.cast(b.const(1, "int64"), x.dtype)
    negative = _choose(b, b.op("lt", x, zero, dtype="bool"), b.op("neg", one, dtype=x.dtype), zero)
    return _choose(b, b.op("gt", x, zero, dtype="bool"), one, negative)


@operator("sigmoid")
def _sigmoid(b: Builder, x: Expr) -> Expr:
    one = _real(b, 1.0)
    return b.op(
        "div", one, b.op("add", one, b.op("exp", b.op("neg", x, dtype=REAL), dtype=REAL), dtype=REAL), dtype=REAL
    )


@operator("silu")
def _silu(b: Builder, x: Expr) -> Expr:
    return b.op("mul", x, _sigmoid(b, x), dtype=REAL)


@operator("gelu")
def _gelu(b: Builder, x: Expr, approximate: str = "none") -> Expr:
    """torch's two formulas. (Through erfc the tail is more accurate, but bound by arithmetic: 0.85 of the floor.)"""
    half, one = _real(b, 0.5), _real(b, 1.0)
    if approximate == "tanh":
        cube = b.op("mul", b.op("mul", x, x, dtype=REAL), x, dtype=REAL)
        inner = b.op("add", x, b.op("mul", _real(b, 0.044715), cube, dtype=REAL), dtype=REAL)
        inner = b.op("mul", _real(b, math.sqrt(2 / math.pi)), inner, dtype=REAL)
        tail = b.op("add", one, b.op("tanh", inner, dtype=REAL), dtype=REAL)
        return b.op("mul", b.op("mul", half, x, dtype=REAL), tail, dtype=REAL)
    scaled = b.op("mul", x, _real(b, math.sqrt(0.5)), dtype=REAL)
    tail = b.op("add", one, b.op("erf", scaled, dtype=REAL), dtype=REAL)
    return b.op("mul", b.op("mul", half, x, dtype=REAL), tail, dtype=REAL)


@operator("leaky_relu")
def _leaky_relu(b: Builder, x: Expr, slope: Expr | None = None) -> Expr:
    slope = slope or _real(b, 0.01)
    return _choose(b, b.op("gt", x, _real(b, 0.0), dtype="bool"), x, b.op("mul", x, slope, dtype=REAL))


@operator("elu")
def _elu(
    b: Builder, x: Expr, alpha: Expr | None = None, scale: Expr | None = None, input_scale: Expr | None = None
) -> Expr:
    one = _real(b, 1.0)
    alpha, scale, input_scale = alpha or one, scale or one, input_scale or one
    low = b.op("expm1", b.op("mul", x, input_scale, dtype=REAL), dtype=REAL)
    low = b.op("mul", low, b.op("mul", alpha, scale, dtype=REAL), dtype=REAL)
    return _choose(b, b.op("gt", x, _real(b, 0.0), dtype="bool"), b.op("mul", x, scale, dtype=REAL), low)


@operator("softplus")
def _softplus(b: Builder, x: Expr, beta: Expr | None = None, threshold: Expr | None = None) -> Expr:
    beta, threshold = beta or _real(b, 1.0), threshold or _real(b, 20.0)
    scaled = b.op("mul", x, beta, dtype=REAL)
    low = b.op("div", softplus(b, scaled), beta, dtype=REAL)
    return _choose(b, b.op("gt", scaled, threshold, dtype="bool"), x, low)


@operator("hardswish")
def _hardswish(b: Builder, x: Expr) -> Expr:
    return b.op("mul", x, _hardsigmoid_times_six(b, x, 1 / 6), dtype=REAL)


@operator("hardsigmoid")
def _hardsigmoid(b: Builder, x: Expr) -> Expr:
    return _hardsigmoid_times_six(b, x, 1 / 6)


def _hardsigmoid_times_six(b: Builder, x: Expr, factor: float) -> Expr:
    inner = _clamp(b, b.op("add", x, _real(b, 3.0), dtype=REAL), _real(b, 0.0), _real(b, 6.0))
    return b.op("mul", inner, _real(b, factor), dtype=REAL)


@operator("addcmul")
def _addcmul(b: Builder, x: Expr, y: Expr, z: Expr, value: Expr | None = None) -> Expr:
    term = b.op("mul", y, z, dtype=x.dtype)
    if value is not None:
        term = b.op("mul", value, term, dtype=x.dtype)
    return b.op("add", x, term, dtype=x.dtype)


@operator("addcdiv")
def _addcdiv(b: Builder, x: Expr, y: Expr, z: Expr, value: Expr | None = None) -> Expr:
    term = b.op("div", b.op("mul", value, y, dtype=REAL) if value is not None else y, z, dtype=REAL)
    return b.op("add", x, term, dtype=REAL)


@operator("lerp")
def _lerp(b: Builder, start: Expr, end: Expr, weight: Expr) -> Expr:
    """torch's two-sided form: from the nearer end."""
    span, one = b.op("sub", end, start, dtype=REAL), _real(b, 1.0)
    near = b.op("add", start, b.op("mul", weight, span, dtype=REAL), dtype=REAL)
    far = b.op("sub", end, b.op("mul", span, b.op("sub", one, weight, dtype=REAL), dtype=REAL), dtype=REAL)
    return _choose(b, b.op("lt", b.op("abs", weight, dtype=REAL), _real(b, 0.5), dtype="bool"), near, far)


POINTWISE["xlogy"] = x_log_y


@operator("fmod")
def _fmod(b: Builder, x: Expr, y: Expr) -> Expr:
    """The remainder of division towards zero; `quotient` and `rest` are those of integers in C."""
    return b.op("rest" if x.dtype in INTEGERS else "fmod", x, y, dtype=x.dtype)


@operator("remainder")
def _remainder(b: Builder, x: Expr, y: Expr) -> Expr:
    """The remainder with the sign of the divisor."""
    rest, zero = _fmod(b, x, y), b.cast(b.const(0, "int64"), x.dtype)
    opposite = b.op("ne", b.op("lt", rest, zero, dtype="bool"), b.op("lt", y, zero, dtype="bool"), dtype="bool")
    moved = b.op("and", b.op("ne", rest, zero, dtype="bool"), opposite, dtype="bool")
    return _choose(b, moved, b.op("add", rest, y, dtype=x.dtype), rest)


@operator("div")
def _div(b: Builder, x: Expr, y: Expr, rounding_mode: str | None = None) -> Expr:
    if x.dtype in INTEGERS:
        raise NoCandidate("the engine has no kernel for a division of integers", operator="div")
    quotient = b.op("div", x, y, dtype=REAL)
    return (
        quotient
        if rounding_mode is None
        else b.op("trunc" if rounding_mode == "trunc" else "floor", quotient, dtype=REAL)
    )
