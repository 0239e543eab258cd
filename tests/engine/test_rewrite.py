"""Each algebraic rule applies under its condition and nowhere else."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from kforge.engine.graph.ir import REAL, Buffer, Builder, Expr
from kforge.engine.graph.rewrite import RULES, simplify
from kforge.engine.graph.symbols import Poly, Size, Var
from kforge.task import Call
from tests.engine.support import compare, function_task, proposals

SPACE = Var("c0", Poly.of(8))


def setup() -> tuple[Builder, Expr, Expr]:
    """A builder, a float value and an int64 value."""
    b = Builder(simplify)
    x = b.load(Buffer("x", "float32", (Poly.of(8),), "input"), Poly.of(SPACE))
    i = b.load(Buffer("i", "int64", (Poly.of(8),), "input"), Poly.of(SPACE))
    return b, x, i


def test_every_rule_is_listed() -> None:
    """The registry holds the rules that this file tests."""
    assert set(RULES) == {
        "fold_constants",
        "drop_unit",
        "drop_double_cast",
        "drop_double_negation",
        "negated_comparison",
        "power_by_products",
        "known_choice",
        "known_comparison",
        "scale_of_scale",
        "index_arithmetic",
        "divide_by_power_of_two",
        "signs",
        "repeated",
        "square_of_root",
        "tanh_of_softplus",
        "log1p_of_at_most_one",
        "chosen_x_log_y",
        "difference_of_logarithms",
    }


def test_mish_needs_one_exponential(tmp_path: Path) -> None:
    """tanh of softplus is a quotient of polynomials in one exponential, right from -inf to inf, and NaN of NaN."""
    task = function_task("return F.mish(x), x * torch.tanh(torch.log1p(torch.exp(x)))", "torch.randn(64)", tmp_path)
    candidate = proposals(task)[0]
    source = candidate.files["op_kforge.cu"]
    assert source.count("expf(") == 1 and "tanhf" not in source and "log1pf" not in source
    ends = torch.tensor([-math.inf, math.inf, math.nan, -110.0, -88.0, -20.0, -1e-30, 0.0, 19.99, 20.01, 45.0, 1e30])
    compare(task, candidate, tmp_path, [Call((torch.linspace(-30, 30, 4001),)), Call((ends,))])


def test_equal_expressions_are_one() -> None:
    """Common subexpressions are shared by construction."""
    b, x, _ = setup()
    assert b.op("exp", x, dtype=REAL) is b.op("exp", x, dtype=REAL)


def test_units_vanish_and_zeros_stay() -> None:
    """x * 1, x / 1, x - 0 are x; x + 0 and x * 0 are not touched, for the sake of -0.0 and NaN."""
    b, x, _ = setup()
    one, zero = b.const(1.0, REAL), b.const(0.0, REAL)
    assert b.op("mul", x, one, dtype=REAL) is x
    assert b.op("mul", one, x, dtype=REAL) is x
    assert b.op("div", x, one, dtype=REAL) is x
    assert b.op("sub", x, zero, dtype=REAL) is x
    assert b.op("sub", x, b.const(-0.0, REAL), dtype=REAL) is not x
    assert b.op("add", x, zero, dtype=REAL).op == "add"
    assert b.op("mul", x, zero, dtype=REAL).op == "mul"


def test_constants_fold_where_exact() -> None:
    """Casts, negation and integer arithmetic of constants; infinities are left alone except for their sign."""
    b, _, _ = setup()
    assert b.cast(b.const(3, "int64"), REAL) is b.const(3.0, REAL)
    assert b.op("add", b.const(2, "int64"), b.const(5, "int64"), dtype="int64").value == 7
    assert b.op("neg", b.const(math.inf, REAL), dtype=REAL).value == -math.inf


def test_powers_become_products() -> None:
    """Squares, cubes, roots and reciprocals as torch computes them; other powers stay."""
    b, x, _ = setup()
    assert b.op("pow", x, b.const(2.0, REAL), dtype=REAL) is b.op("mul", x, x, dtype=REAL)
    assert b.op("pow", x, b.const(0.5, REAL), dtype=REAL).op == "sqrt"
    assert b.op("pow", x, b.const(-0.5, REAL), dtype=REAL).op == "rsqrt"
    assert b.op("pow", x, b.const(2.5, REAL), dtype=REAL).op == "pow"


def test_negations() -> None:
    """Double negation goes; a negated comparison turns around for integers only, since NaN fails both ways."""
    b, x, i = setup()
    assert b.op("neg", b.op("neg", x, dtype=REAL), dtype=REAL) is x
    less = b.op("lt", i, b.const(4, "int64"), dtype="bool")
    assert b.op("not", less, dtype="bool").op == "ge"
    assert b.op("not", b.op("lt", x, b.const(4.0, REAL), dtype="bool"), dtype="bool").op == "not"


def test_casts_there_and_back() -> None:
    """bool through int64 and back is nothing; int64 through int32 is something."""
    b, _, i = setup()
    flag = b.op("lt", i, b.const(4, "int64"), dtype="bool")
    assert b.cast(b.cast(flag, "int64"), "bool") is flag
    assert b.cast(b.cast(i, "int32"), "int64") is not i


def test_choices() -> None:
    """A choice between equals, or by a constant, is no choice."""
    b, x, i = setup()
    flag = b.op("lt", i, b.const(4, "int64"), dtype="bool")
    assert b.op("where", flag, x, x, dtype=REAL) is x
    assert b.op("where", b.const(False, "bool"), i, x, dtype=REAL) is x


def test_scales_join_only_when_exact() -> None:
    """(x * 2) * 4 is x * 8; (x * 0.1) * 10 stays as written."""
    b, x, _ = setup()

    def scaled(first: float, second: float) -> Expr:
        return b.op("mul", b.op("mul", x, b.const(first, REAL), dtype=REAL), b.const(second, REAL), dtype=REAL)

    assert scaled(2.0, 4.0) is b.op("mul", x, b.const(8.0, REAL), dtype=REAL)
    assert scaled(0.1, 10.0).args[0].op == "mul"


def test_the_square_of_a_norm_has_no_root() -> None:
    """sqrt(s) * sqrt(s) is s where s is a sum of squares; of any other s it stays, since a negative one gives NaN."""
    b, x, _ = setup()
    total = b.reduce("sum", b.op("mul", x, x, dtype=REAL), REAL)
    root = b.op("sqrt", total, dtype=REAL)
    assert b.op("mul", root, root, dtype=REAL) is total
    other = b.op("sqrt", b.reduce("sum", x, REAL), dtype=REAL)
    assert b.op("mul", other, other, dtype=REAL).op == "mul"


def test_comparisons_that_are_known() -> None:
    """An index is not below zero, a clamped number not below its clamp; sizes may be zero, values anything."""
    b, x, i = setup()
    zero, nine = b.const(0, "int64"), b.const(9, "int64")

    def less(a: Expr, c: Expr) -> Expr:
        return b.op("lt", a, c, dtype="bool")

    place = b.index(Poly.of(SPACE))
    assert less(place, zero).value is False and b.op("ge", place, zero, dtype="bool").value is True
    assert less(b.index(Poly.of(SPACE) + 8), b.const(8, "int64")).value is False
    clamped = b.op("where", less(i, zero), zero, i, dtype="int64")
    both = b.op("where", b.op("gt", clamped, nine, dtype="bool"), nine, clamped, dtype="int64")
    assert less(clamped, zero).value is False and less(both, zero).value is False
    assert less(b.op("abs", x, dtype=REAL), b.const(0.0, REAL)).value is False
    size = b.index(Poly.of(Size("n", 8)) - 1)
    for open_one in (less(i, zero), less(clamped, nine), less(size, zero), less(x, b.const(0.0, REAL))):
        assert open_one.op == "lt"
