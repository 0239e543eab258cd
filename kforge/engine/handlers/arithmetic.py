"""Less common pointwise operators: extremes that pass over NaN, quotients of integers, shifts, rounding to decimals."""

from __future__ import annotations

from typing import Any

from kforge.engine.graph.importer import Importer, Meta, computing, handles
from kforge.engine.graph.ir import INTEGERS, REAL, Builder, Expr
from kforge.engine.graph.tensors import Tensor
from kforge.engine.handlers.operators import C_REAL, POINTWISE, operator
from kforge.errors import NoCandidate

C_REAL |= {
    "hypot": "hypot{f}({0}, {1})",
    "copysign": "copysign{f}({0}, {1})",
    "nextafter": "nextafter{f}({0}, {1})",
    "lgamma": "lgamma{f}({0})",
    "signbit": "signbit({0})",
}
for _name in ("hypot", "copysign", "nextafter"):
    POINTWISE[_name] = lambda b, x, y, _n=_name: b.op(_n, x, y, dtype=REAL)
POINTWISE["lgamma"] = lambda b, x: b.op("lgamma", x, dtype=REAL)


@operator("fmax")
def _fmax(b: Builder, x: Expr, y: Expr) -> Expr:
    """The larger; where one of them is NaN, the other."""
    return _other_of_nan(b, "gt", x, y)


@operator("fmin")
def _fmin(b: Builder, x: Expr, y: Expr) -> Expr:
    return _other_of_nan(b, "lt", x, y)


def _other_of_nan(b: Builder, better: str, x: Expr, y: Expr) -> Expr:
    first = b.op(better, x, y, dtype="bool")
    if x.dtype == REAL:
        first = b.op("or", first, b.op("isnan", y, dtype="bool"), dtype="bool")
    return b.op("where", first, x, y, dtype=x.dtype)


@operator("__lshift__", "bitwise_left_shift")
def _left(b: Builder, x: Expr, y: Expr) -> Expr:
    return _shifted(b, "shl", x, y)


@operator("__rshift__", "bitwise_right_shift")
def _right(b: Builder, x: Expr, y: Expr) -> Expr:
    return _shifted(b, "shr", x, y)


def _shifted(b: Builder, name: str, x: Expr, y: Expr) -> Expr:
    """By as many bits as there are, or by fewer than none, everything is moved out: C leaves that open."""
    bits = {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8}.get(x.dtype)
    if bits is None:
        raise NoCandidate(f"the engine has no kernel for a shift of {x.dtype}", operator="shift")
    most = bits - (x.dtype != "uint8")  # of what is left of a negative number the sign stays
    zero = b.cast(b.const(0, "int64"), x.dtype)
    if y.op == "const":
        n = int(y.value or 0)
        if 0 <= n < most:
            return b.op(name, x, y, dtype=x.dtype)
        return zero if name == "shl" and not 0 <= n < bits else b.op(name, x, b.const(most - 1, x.dtype), dtype=x.dtype)
    limit = b.const(bits, x.dtype)
    within = b.op("and", b.op("ge", y, zero, dtype="bool"), b.op("lt", y, limit, dtype="bool"), dtype="bool")
    count = b.op("where", within, y, zero, dtype=x.dtype)
    moved = b.op(name, x, count, dtype=x.dtype)
    gone = zero
    if name == "shr" and x.dtype != "uint8":
        gone = b.op("shr", x, b.const(bits - 1, x.dtype), dtype=x.dtype)
    return b.op("where", within, moved, gone, dtype=x.dtype)


@operator("floor_divide")
def _floor_divide(b: Builder, x: Expr, y: Expr) -> Expr:
    return divided(b, x, y, "floor")


def divided(b: Builder, x: Expr, y: Expr, rounding: str) -> Expr:
    """A quotient rounded down or towards zero: of integers through C's division, which cuts off."""
    if x.dtype not in INTEGERS:
        quotient = b.op("div", x, y, dtype=REAL)
        return _floored(b, x, y, quotient) if rounding == "floor" else b.op(rounding, quotient, dtype=REAL)
    cut = b.op("quotient", x, y, dtype=x.dtype)
    if rounding == "trunc" or x.dtype == "uint8":
        return cut
    zero, one = b.cast(b.const(0, "int64"), x.dtype), b.cast(b.const(1, "int64"), x.dtype)
    rest = b.op("rest", x, y, dtype=x.dtype)
    opposite = b.op("ne", b.op("lt", rest, zero, dtype="bool"), b.op("lt", y, zero, dtype="bool"), dtype="bool")
    below = b.op("and", b.op("ne", rest, zero, dtype="bool"), opposite, dtype="bool")
    return b.op("where", below, b.op("sub", cut, one, dtype=x.dtype), cut, dtype=x.dtype)


def _floored(b: Builder, x: Expr, y: Expr, quotient: Expr) -> Expr:
    """Of floats as torch does, through the remainder: 1 / 0.1 rounds to 10, although 0.1 is larger than a tenth."""

    def real(name: str, *args: Expr) -> Expr:
        return b.op(name, *args, dtype=REAL)

    def test(name: str, *args: Expr) -> Expr:
        return b.op(name, *args, dtype="bool")

    zero, one = b.const(0.0, REAL), b.const(1.0, REAL)
    rest = real("fmod", x, y)
    whole = real("div", real("sub", x, rest), y)
    opposite = test("and", test("ne", rest, zero), test("ne", test("lt", y, zero), test("lt", rest, zero)))
    whole = real("where", opposite, real("sub", whole, one), whole)
    below = real("floor", whole)
    near = test("gt", real("sub", whole, below), b.const(0.5, REAL))
    below = real("where", near, real("add", below, one), below)
    signed = real("where", test("eq", whole, zero), real("mul", zero, quotient), below)
    return real("where", test("eq", y, zero), quotient, signed)


_quotient = POINTWISE["div"]


@operator("div")
def _div(b: Builder, x: Expr, y: Expr, rounding_mode: str | None = None) -> Expr:
    """As the common one, and of integers where the result is rounded to one."""
    if rounding_mode is not None and (x.dtype in INTEGERS or rounding_mode == "floor"):
        return divided(b, x, y, rounding_mode)
    return _quotient(b, x, y, rounding_mode)


@handles("round")
def _round(imp: Importer, meta: Meta, x: Tensor, *, decimals: int = 0) -> Tensor:
    """Of decimals: scaled by a power of ten, rounded, scaled back, as torch does."""
    if x.dtype in INTEGERS:
        if decimals < 0:
            raise imp.reject("integers rounded to tens")
        return imp.map(lambda b, v: v, x, dtype=meta.dtype, compute=computing(x.dtype))
    scale = float(10 ** abs(decimals))
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")

    def rounded(b: Builder, v: Expr) -> Expr:
        if not decimals:
            return b.op("round", v, dtype=REAL)
        factor = b.const(scale, REAL)
        whole = b.op("round", b.op(there, v, factor, dtype=REAL), dtype=REAL)
        return b.op(back, whole, factor, dtype=REAL)

    return imp.map(rounded, x, dtype=meta.dtype, compute=REAL)


@handles("signbit")
def _signbit(imp: Importer, meta: Meta, x: Tensor) -> Tensor:
    def negative(b: Builder, v: Expr) -> Expr:
        if v.dtype == REAL:
            return b.op("signbit", v, dtype="bool")
        return b.op("lt", v, b.cast(b.const(0, "int64"), v.dtype), dtype="bool")

    return imp.map(negative, x, dtype="bool", compute=computing(x.dtype))


@handles("ldexp")
def _ldexp(imp: Importer, meta: Meta, x: Tensor, other: Tensor) -> Tensor:
    """x times two to the other, through a power as torch computes it."""

    def scaled(b: Builder, v: Expr, n: Expr) -> Expr:
        return b.op("mul", v, b.op("exp2", n, dtype=REAL), dtype=REAL)

    return imp.map(scaled, x, other, dtype=meta.dtype, compute=REAL)


@handles("fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_tensor_affine")
def _fake_quantize(
    imp: Importer, meta: Meta, x: Tensor, scale: float, zero: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """x on a grid of quantised values, and where it lies within their range."""

    def nearest(b: Builder, v: Expr) -> Expr:
        whole = b.op("round", b.op("mul", v, b.const(1.0 / scale, REAL), dtype=REAL), dtype=REAL)
        return b.op("add", whole, b.const(float(zero), REAL), dtype=REAL)

    def quantised(b: Builder, v: Expr) -> Expr:
        place = nearest(b, v)
        for bound, name in ((low, "gt"), (high, "lt")):  # a NaN goes to the lower end
            limit = b.const(float(bound), REAL)
            place = b.op("where", b.op(name, place, limit, dtype="bool"), place, limit, dtype=REAL)
        whole = b.op("sub", place, b.const(float(zero), REAL), dtype=REAL)
        return b.op("mul", whole, b.const(scale, REAL), dtype=REAL)

    def within(b: Builder, v: Expr) -> Expr:
        place = nearest(b, v)
        above = b.op("ge", place, b.const(float(low), REAL), dtype="bool")
        return b.op("and", above, b.op("le", place, b.const(float(high), REAL), dtype="bool"), dtype="bool")

    result = imp.map(quantised, x, dtype=meta.dtype, compute=REAL)
    return result, imp.map(within, x, dtype="bool", compute=REAL)


@handles("rrelu_with_noise_functional", "rrelu_with_noise")
def _rrelu(
    imp: Importer,
    meta: Meta,
    x: Tensor,
    noise: Any,
    lower: float = 0.125,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    *_: Any,
) -> Any:
    """In eval form a leaky ReLU with the mean slope."""
    if training:
        raise imp.reject("slopes drawn at random")
    result = imp.map(POINTWISE["leaky_relu"], x, (lower + upper) / 2, dtype=meta.dtype, compute=REAL)
    return (result, noise) if "functional" in meta.operator else result
