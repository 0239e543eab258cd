"""Special functions (Bessel, gamma, inverse error functions) and the divisors of integers, pointwise.

The device functions are CUDA's own or those of templates/cuda/special_helpers.cu.j2, in the formulas that torch has.
"""

from __future__ import annotations

import math

from kforge.engine.graph.importer import Importer, Meta, handles
from kforge.engine.graph.ir import FLOATS, INTEGERS, REAL, Builder, Expr
from kforge.engine.graph.tensors import Tensor
from kforge.engine.handlers.operators import C_REAL, POINTWISE, operator
from kforge.errors import NoCandidate

HELPERS = {
    "i0": "bessel_i0",
    "i0e": "bessel_i0_scaled",
    "i1": "bessel_i1",
    "i1e": "bessel_i1_scaled",
    "digamma": "digamma",
    "trigamma": "trigamma",
    "gcd": "greatest_divisor",
    "lcm": "least_multiple",
    "integer_power": "power_of",
    "frexp_mantissa": "mantissa_of",
    "frexp_exponent": "exponent_of",
    "log1p_unit": "log1p_unit",
    "x_log_x": "x_log_x",
    "log_ratio": "log_ratio",
    "divergence": "divergence",
    "sigmoid": "sigmoid",
}
"""Operators whose device function is written with the kernel; the logarithms are made by graph/logarithms.py."""
OF_TWO = ("gcd", "lcm", "integer_power", "log_ratio", "divergence")
C_REAL |= {name: f"{function}({{0}})" for name, function in HELPERS.items()}
C_REAL |= {name: f"{HELPERS[name]}({{0}}, {{1}})" for name in OF_TWO}
C_REAL |= {"erfinv": "erfinv{f}({0})", "ndtri": "normcdfinv{f}({0})", "erfcx": "erfcx{f}({0})"}


def _of_reals(name: str) -> None:
    POINTWISE[name] = POINTWISE[f"special_{name}"] = lambda b, x: b.op(name, x, dtype=REAL)


for _name in ("i0", "i0e", "i1", "i1e", "digamma", "erfinv", "ndtri", "erfcx"):
    _of_reals(_name)
POINTWISE["special_modified_bessel_i0"] = POINTWISE["i0"]
POINTWISE["special_modified_bessel_i1"] = POINTWISE["i1"]


@operator("gcd")
def _gcd(b: Builder, x: Expr, y: Expr) -> Expr:
    return _of_integers(b, "gcd", x, y)


@operator("lcm")
def _lcm(b: Builder, x: Expr, y: Expr) -> Expr:
    return _of_integers(b, "lcm", x, y)


def _of_integers(b: Builder, name: str, x: Expr, y: Expr) -> Expr:
    if x.dtype not in INTEGERS:
        raise NoCandidate(f"the engine has no kernel for {name} of {x.dtype}", operator=name)
    wide = "int64" if x.dtype == "int64" else "int32"
    return b.cast(b.op(name, b.cast(x, wide), b.cast(y, wide), dtype=wide), x.dtype)


@operator("pow")
def _pow(b: Builder, x: Expr, y: Expr) -> Expr:
    """Integers by multiplication, without those bits that their type has not."""
    if x.dtype not in INTEGERS:
        return b.op("pow", x, y, dtype=x.dtype)
    if y.op == "const" and y.value in (2, 3):
        square = b.op("mul", x, x, dtype=x.dtype)
        return square if y.value == 2 else b.op("mul", square, x, dtype=x.dtype)
    return _of_integers(b, "integer_power", x, y)


@operator("angle")
def _angle(b: Builder, x: Expr) -> Expr:
    """Of real numbers: zero or pi, and NaN of NaN."""
    if x.dtype != REAL:
        raise NoCandidate(f"the engine has no kernel for the angle of {x.dtype}", operator="angle")
    negative = b.op("lt", x, b.const(0.0, REAL), dtype="bool")
    straight = b.op("where", negative, b.const(math.pi, REAL), b.const(0.0, REAL), dtype=REAL)
    return b.op("where", b.op("isnan", x, dtype="bool"), x, straight, dtype=REAL)


@handles("frexp")
def _frexp(imp: Importer, meta: Meta, x: Tensor) -> tuple[Tensor, Tensor]:
    """A mantissa of [0.5, 1) and the power of two that it is multiplied by."""
    if x.dtype not in FLOATS:
        raise imp.reject(f"numbers of {x.dtype}")
    mantissa = imp.map(lambda b, v: b.op("frexp_mantissa", v, dtype=REAL), x, dtype=x.dtype)
    exponent = imp.map(lambda b, v: b.op("frexp_exponent", v, dtype="int32"), x, dtype="int32", compute=REAL)
    return mantissa, exponent


@operator("polygamma")
def _polygamma(b: Builder, n: Expr, x: Expr) -> Expr:
    """digamma and its first derivative; further ones are sums without a known end."""
    if n.value not in (0, 1):
        raise NoCandidate(f"the engine has no kernel for derivative {n.value} of digamma", operator="polygamma")
    return b.op("trigamma" if n.value else "digamma", x, dtype=REAL)
