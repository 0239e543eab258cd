"""Extremes of monotone functions: which functions move out, which must stay, and that values are torch's either way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.graph.ir import Expr, walk
from kforge.engine.proposing import make_plan
from kforge.task import Call, capture
from tests.engine.support import compare, function_task, proposals

ROWS = "torch.randn(9, 70) * 3"
IMAGE = "torch.randn(1, 2, 11, 40) * 3"


def extremes(body: str, inputs: str, folder: Path) -> list[Expr]:
    """The reductions and windows of the first plan."""
    task = function_task(body, inputs, folder)
    programs = make_plan(task, capture(task))[1]
    return [e for p in programs for e in walk(s.value for s in p.stores) if e.op in ("reduce", "window")]


RISING = (
    "x.exp()",
    "torch.sigmoid(x)",
    "torch.tanh(x * 2 + 1)",
    "F.elu(x, 0.7)",
    "F.leaky_relu(x, 0.1)",
    "(F.relu6(x) / 3)",
    "F.hardsigmoid(x)",
    "F.hardtanh(x, -2, 2).exp()",
    "torch.where(x > 1, x, x * 0.5)",
    "x.floor()",
    "x.clamp(min=0).sqrt()",
)


@pytest.mark.parametrize(("form", "inputs"), (("{}.amax(1)", ROWS), ("F.max_pool2d({}, 3, 2, 1)", IMAGE)))
def test_rising_functions_move_out(form: str, inputs: str, tmp_path: Path) -> None:
    """The extreme is that of what is read: one reduction, one window for all of them."""
    found = extremes(f"return {', '.join(map(form.format, RISING))}", inputs, tmp_path)
    assert [e.args[0].op for e in found] == ["load"]


@pytest.mark.parametrize(
    ("body", "kind", "operand"),
    (
        ("return (-x).exp().amax(1)", "min", "load"),
        ("return (1 - torch.sigmoid(x)).amin(1)", "max", "load"),
        ("return (x * x + 1).sqrt().amax(1)", "max", "mul"),
        ("return (x.abs() + 1).log().amin(1)", "min", "abs"),
        ("return (1 / (x.exp() + 1)).amax(1)", "min", "load"),
    ),
)
def test_falling_functions_and_parts(body: str, kind: str, operand: str, tmp_path: Path) -> None:
    """What falls turns one extreme into the other; of what rises only from zero on, the square stays inside."""
    (found,) = extremes(body, ROWS, tmp_path)
    assert (found.kind, found.args[0].op) == (kind, operand)


STAYS = (
    "F.gelu(x).amax(1)",  # falls before it rises
    "x.log().amax(1)",  # NaN where x is negative
    "(x - 5).sqrt().amin(1)",
    "torch.where(x > 0, x, 0.0).amax(1)",  # a NaN of x gives zero
    "torch.where(x > 0, x - 2, x).amax(1)",  # falls at zero
    "(1 / x).amax(1)",
    "(x + x.t()[:, :1].t()[:, 0]).amax(1)",  # infinities of both signs might meet
    "(0 * x).amax(1)",
    "x.exp().sum(1)",
    "F.max_pool1d(x.exp(), 2, 1, 1, 70)",  # a window of nothing but padding is -inf
)


def test_what_stays(tmp_path: Path) -> None:
    """Where a condition fails, the function is computed for every element."""
    found = extremes(f"return {', '.join(STAYS)}", ROWS, tmp_path)
    assert len(found) == len(STAYS) and all(e.args[0].op != "load" for e in found)


def test_indices_stay_those_of_the_function(tmp_path: Path) -> None:
    """With an index beside it a maximum stays as it is: saturated elements are equal, and the first of them counts."""
    body = "return torch.sigmoid(x).max(1), F.max_pool2d(F.relu(x[None]), 2, return_indices=True)"
    assert all(e.args[0].op != "load" for e in extremes(body, ROWS, tmp_path))


def test_a_row_after_its_own_maximum(tmp_path: Path) -> None:
    """max(x - max(x)) is not searched for again: softmax of what is shifted already costs one walk less."""
    body = "return F.softmax(x - x.amax(1, keepdim=True), 1)"
    assert [e.kind for e in extremes(body, ROWS, tmp_path)] == ["max", "sum"]


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return torch.sigmoid(x).amax(1), (-x).exp().amax(1), F.elu(x).amin(1), (x * x + 1).sqrt().amin(1)", ROWS),
        ("return F.softmax(x - x.amax(1, keepdim=True), 1)", ROWS),
        ("return F.max_pool2d(torch.tanh(x), 3, 1, 1), F.max_pool2d(F.relu(x) * 2, 2, ceil_mode=True)", IMAGE),
    ),
)
def test_values(body: str, inputs: str, tmp_path: Path) -> None:
    """As torch has them: NaN, infinities, rows and windows of nothing but -inf."""
    task = function_task(body, inputs, tmp_path)
    x = task.make_call().args[0].clone()
    rows = x.view(-1, x.shape[-1])
    rows[1, 3], rows[2, 4], rows[3, 5] = torch.nan, torch.inf, -torch.inf
    rows[4] = -torch.inf
    rows[5, ::2], rows[5, 1::2] = torch.inf, -torch.inf
    compare(task, proposals(task)[0], tmp_path, [task.make_call(), Call((x,))])
