"""Rewrites of programs and of tensors: each where its condition holds, and what it must not touch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.graph.ir import REAL, Buffer, Builder, Expr
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.proposing import make_plan
from kforge.task import Call, capture
from tests.engine.support import compare, function_task, proposals


def value() -> tuple[Builder, Expr]:
    """A builder and a float value."""
    b = Builder(simplify)
    space = Var("c0", Poly.of(8))
    return b, b.load(Buffer("x", "float32", (Poly.of(8),), "input"), Poly.of(space))


def scaled(b: Builder, x: Expr, *factors: float) -> Expr:
    for f in factors:
        x = b.op("mul", x, b.const(f, REAL), dtype=REAL)
    return x


def test_scales_join_where_nothing_can_overflow() -> None:
    """Two factors of at most one, or powers of two, become one; a large one that a small one undoes stays two."""
    b, x = value()
    assert scaled(b, x, 0.3, 0.7) is b.op("mul", x, b.const(0.3 * 0.7, REAL), dtype=REAL)
    assert scaled(b, x, 4.0, 0.5) is b.op("mul", x, b.const(2.0, REAL), dtype=REAL)
    assert scaled(b, x, 3.0, 0.7).args[0].op == "mul"
    assert scaled(b, x, 0.7, 3.0).args[0].op == "mul"


def test_quotients_by_powers_of_two() -> None:
    """x / 8 is x * 0.125; x / 3 and the mean of a row stay quotients."""
    b, x = value()
    assert b.op("div", x, b.const(8.0, REAL), dtype=REAL) is scaled(b, x, 0.125)
    assert b.op("div", x, b.const(3.0, REAL), dtype=REAL).op == "div"
    assert b.op("div", b.reduce("sum", x, REAL), b.const(8.0, REAL), dtype=REAL).op == "div"


def test_signs_and_repetitions() -> None:
    """Signs move out of sums, products and absolute values; relu of relu is relu."""
    b, x = value()
    neg = b.op("neg", x, dtype=REAL)
    assert b.op("sub", x, neg, dtype=REAL) is b.op("add", x, x, dtype=REAL)
    assert b.op("abs", neg, dtype=REAL) is b.op("abs", x, dtype=REAL)
    zero = b.const(0.0, REAL)

    def relu(v: Expr) -> Expr:
        return b.op("where", b.op("lt", v, zero, dtype="bool"), zero, v, dtype=REAL)

    assert relu(relu(x)) is relu(x)


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return torch.sum(x @ y.t() / 2 + z, dim=1, keepdim=True) * 1.5", "randn(40, 50), randn(60, 50), randn(60)"),
        ("return F.linear(x, y, z).sum(1)", "rand(30, 500), rand(60, 500), rand(60)"),
        ("return (x @ y.t() + z).mean()", "randn(40, 50), randn(60, 50), randn(60)"),
    ),
)
def test_sums_of_a_product(body: str, inputs: str, tmp_path: Path) -> None:
    """The sum over rows or columns of a product is a product with a sum: no library call is left."""
    task = function_task(body, inputs.replace("rand", "torch.rand"), tmp_path, "x, y, z")
    candidate = proposals(task)[0]
    assert "torch.mm" not in candidate.files["op_kforge.py"]
    call = task.make_call()
    call.args[0][3, 5] = torch.nan
    call.args[1][4, 6] = torch.inf
    compare(task, candidate, tmp_path, [task.make_call(), call])


def test_two_sums_of_products_in_one_kernel(tmp_path: Path) -> None:
    """Products of equal sizes are told apart."""
    body = "return (x @ y * 2 + 1).sum(1) + (u @ v * 3 + 2).sum(1), x + u, y + v"
    inputs = "torch.randn(40, 50), torch.randn(50, 60), torch.randn(40, 50), torch.randn(50, 60)"
    task = function_task(body, inputs, tmp_path, "x, y, u, v")
    compare(task, proposals(task)[0], tmp_path)


def test_products_that_are_not_linear_stay(tmp_path: Path) -> None:
    """Neither a sum of squares of a product nor one weighted along the sum may be taken apart, nor what a norm over its
    rows sums up: that is one kernel after the product."""
    norm = "product = x @ y + z\nreturn product - product.mean(1, keepdim=True)"
    for body in ("return (x @ y).square().sum(1)", norm, "return F.layer_norm(x @ y + z, (60,))"):
        inputs = "torch.randn(40, 50), torch.randn(50, 60), torch.randn(60)"
        candidate = proposals(function_task(body, inputs, tmp_path, "x, y, z"))[0]
        assert "torch.mm" in candidate.files["op_kforge.py"] and "op_2" not in candidate.files["op_kforge.py"]


@pytest.mark.parametrize(
    ("body", "kernels"), (("return torch.trace(x @ y) / 2", 2), ("return torch.relu(torch.diagonal(x @ y))", 1))
)
def test_the_diagonal_of_a_product(body: str, kernels: int, tmp_path: Path) -> None:
    """Of a product whose diagonal alone is wanted the other elements are not computed."""
    task = function_task(body, "torch.randn(40, 70), torch.randn(70, 40)", tmp_path, "x, y")
    candidate = proposals(task)[0]
    assert "torch.mm" not in candidate.files["op_kforge.py"]
    assert len(make_plan(task, capture(task))[1]) == kernels
    call = task.make_call()
    call.args[0][3, 5], call.args[1][5, 3], call.args[1][6, 7] = torch.inf, 0, torch.nan
    compare(task, candidate, tmp_path, [task.make_call(), call])


def test_products_that_are_wanted_elsewhere_stay(tmp_path: Path) -> None:
    """With the product itself a result, its diagonal is read from it."""
    body = "z = x @ y\nreturn torch.trace(z) / 2, z + 1"
    candidate = proposals(function_task(body, "torch.randn(40, 70), torch.randn(70, 40)", tmp_path, "x, y"))[0]
    assert "torch.mm" in candidate.files["op_kforge.py"]


@pytest.mark.parametrize(
    ("body", "reductions"),
    (
        ("return x.sum(1).sum(0)", ["sum"]),
        ("return x.amax((0, 2)).amax()", ["max"]),
        ("return x.sum(2).sum(0, keepdim=True) * 2", ["sum"]),
        ("return x.sum(0).mean()", ["sum"]),
        ("return x.mean(2).mean(1)", ["sum", "sum"]),
        ("y = x.sum(2)\nreturn y.sum(1), y", ["sum", "sum"]),
        ("return x.sum(2).amax(1)", ["sum", "max"]),
        ("return x.prod(2).prod(1)", ["prod", "prod"]),
    ),
)
def test_sums_of_sums(body: str, reductions: list[str], tmp_path: Path) -> None:
    """A sum of sums, an extreme of extremes is one walk; a mean of means and what is used twice are not."""
    task = function_task(body, "torch.randn(4, 9, 30)", tmp_path)
    programs = make_plan(task, capture(task))[1]
    assert [e.kind for p in programs for e in p.reductions] == reductions
    if len(reductions) == 1:
        compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return torch.diag(x) @ y", "torch.randn(40), torch.randn(40, 60)"),
        ("return torch.relu(y.t() @ torch.diag(x))", "torch.randn(40), torch.randn(40, 60)"),
        ("return torch.diag_embed(x) @ y", "torch.randn(3, 40), torch.randn(3, 40, 60)"),
        ("return y.mT @ torch.diag_embed(x) + 1", "torch.randn(3, 40), torch.randn(3, 40, 60)"),
    ),
)
def test_diagonal_matrices(body: str, inputs: str, tmp_path: Path) -> None:
    """A diagonal matrix scales rows or columns; NaN and infinities spread as in the full product."""
    task = function_task(body, inputs, tmp_path, "x, y")
    candidate = proposals(task)[0]
    assert not any(f"torch.{name}" in candidate.files["op_kforge.py"] for name in ("mm", "bmm"))
    call = task.make_call()
    d, full = (t[0] if call.args[0].dim() > 1 else t for t in call.args)
    full[3, 5], full[4, 6], full[7, 7], full[8, 7] = torch.nan, torch.inf, 0, -torch.inf
    d[4] = 0
    compare(task, candidate, tmp_path, [task.make_call(), call])


def test_sums_of_what_is_the_same(tmp_path: Path) -> None:
    """A broadcast value is not added again and again: no walk over its columns is left."""
    body = "return x[:, None].expand(6, 33).sum(1), x[:, None].expand(6, 33).amax(1), x[:, None].expand(6, 33).mean(1)"
    task = function_task(body, "torch.randn(6)", tmp_path)
    candidate = proposals(task)[0]
    assert all(not p.reductions and not p.rows for p in make_plan(task, capture(task))[1])
    compare(task, candidate, tmp_path)


def test_a_unit_matrix(tmp_path: Path) -> None:
    """eye is a diagonal matrix; a matrix times eye, element by element, is none: an infinity beside it is NaN."""
    task = function_task("return torch.eye(40, dtype=x.dtype) @ x", "torch.randn(40, 60)", tmp_path)
    candidate = proposals(task)[0]
    assert "torch.mm" not in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path)
    other = function_task(
        "return (y * torch.eye(40)) @ x", "torch.randn(40, 60), torch.randn(40, 40)", tmp_path, "x, y"
    )
    assert "torch.mm" in proposals(other)[0].files["op_kforge.py"]


def test_dead_inputs_are_not_read(tmp_path: Path) -> None:
    """What no output depends on is neither read nor passed to a kernel."""
    task = function_task("unused = y.exp().sum()\nreturn x * 2", "torch.randn(6), torch.randn(6)", tmp_path, "x, y")
    programs = make_plan(task, capture(task))[1]
    assert [b.name for p in programs for b in p.buffers if b.kind == "input"] == ["x"]
    compare(task, proposals(task)[0], tmp_path)


def test_constant_outputs(tmp_path: Path) -> None:
    """A result that reads nothing is written as the constant it is."""
    task = function_task("return torch.zeros_like(x) + 2, x + 1", "torch.randn(6)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize(
    "body",
    (
        "return x.permute(0, 2, 1).reshape(x.shape[0], -1)",
        "return x.permute(0, 2, 1).reshape(x.shape[0], -1).sum(1)",
    ),
)
def test_no_division_is_left_after_a_reshape(body: str, tmp_path: Path) -> None:
    """A reshape of a permuted tensor becomes loops over its own dimensions, for other sizes too."""
    task = function_task(body, "torch.randn(2, 40, 70)", tmp_path)
    candidate = proposals(task)[0]
    assert " % x_" not in candidate.files["op_kforge.cu"] and "/ x_" not in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path, [task.make_call(), Call((torch.randn(2, 9, 11),))])
