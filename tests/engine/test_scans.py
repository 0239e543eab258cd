"""Running results: every schedule against eager torch, in both directions, along any dimension, with what is fused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.families import scan as scans
from kforge.engine.proposing import make_plan
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task, proposals

ALL = "return x.cumsum(1), x.cumprod(1), x.logcumsumexp(1), x.cummax(1), x.cummin(1)"
SCHEDULES = {
    "warp": scans._warp,
    "block": lambda p, t, n: scans._block(p, t, n, ahead=False),
    "ahead": lambda p, t, n: scans._block(p, t, n, ahead=True),
    "look_back": scans._look_back,
    "thread": scans._thread,
    "columns": scans._column_tiles,
}


def forced(task: Task, schedule: str, **constants: int) -> Candidate:
    """A candidate whose programs with scans use one schedule, with these constants."""
    plan, programs = make_plan(task, capture(task))
    choices = []
    for program in programs:
        if program.scans:
            code = SCHEDULES[schedule](program, plan.types, program.name)
        else:
            code = kernels_for(program, plan.types, program.name, Target())[0]
        own = {k: v for k, v in constants.items() if k in code.constants}
        choices.append([replace(code, constants={**code.constants, **own}, tuned=(), limit="")])
    return write_candidate(plan, choices, "a test", None)


@pytest.mark.parametrize("schedule", ("warp", "ahead", "look_back"))
def test_rows(schedule: str, tmp_path: Path) -> None:
    """All five kinds in one kernel, over widths on and off the tiles, single elements turned around included."""
    task = function_task(ALL, "torch.randn(3, 40).round(decimals=1)", tmp_path)
    candidate = forced(task, schedule, BLOCK=64, ITEMS=4)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    calls = [Call((torch.randn(3, w).round(decimals=1),)) for w in (1, 31, 128, 1027)]
    compare(task, candidate, tmp_path, calls)


@pytest.mark.parametrize("backwards", (False, True))
def test_running_logarithms_far_apart(backwards: bool, tmp_path: Path) -> None:
    """Rows whose elements rise and fall by hundreds, begin far below what follows, or hold what is not finite."""
    turned = ".flip(1)" if backwards else ""
    task = function_task(f"return x{turned}.logcumsumexp(1){turned}", "torch.randn(5, 640)", tmp_path)
    x = torch.randn(5, 640)
    odd = torch.stack([x[0] - 500, torch.linspace(-500, 500, 640), torch.linspace(500, -500, 640), x[3], x[4] - 100])
    odd[3, 3], odd[3, 500], odd[0, :20], odd[4, 0], odd[4, -1] = torch.nan, torch.inf, -torch.inf, 0, 0
    candidate = forced(task, "ahead", BLOCK=64, ITEMS=2)
    assert "log_scan<true" in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path, [Call((v,)) for v in (x, x * 40, odd)])


@pytest.mark.parametrize("schedule", ("block", "thread"))
def test_hostile_values(schedule: str, tmp_path: Path) -> None:
    """NaN, infinities and rows of -inf come out where torch puts them; the index is that of the last of equals."""
    dim = 0 if schedule == "thread" else 1
    x = torch.randn(8, 66)
    x[1], x[2, 5], x[3, 7], x[4, :40] = -torch.inf, torch.nan, torch.inf, -torch.inf
    x[5, 3] = x[5, 60] = torch.nan
    x[6, 2], x[6, 3], x[7] = torch.inf, -torch.inf, torch.zeros(66)
    x = x.T.contiguous() if schedule == "thread" else x
    task = function_task(ALL.replace("(1)", f"({dim})"), f"torch.randn({x.shape[0]}, {x.shape[1]})", tmp_path)
    compare(task, forced(task, schedule, BLOCK=64, SPLIT=2, ITEMS=4), tmp_path, [Call((x,))])


@pytest.mark.parametrize("schedule", ("thread", "columns"))
def test_the_other_dimensions(schedule: str, tmp_path: Path) -> None:
    """Along the first or a middle dimension threads take the rows, and nothing is transposed."""
    body = "return x.cumsum(1), x.cummax(1), x.flip(1).cumprod(1).flip(1)"
    task = function_task(body, "torch.randn(3, 70, 45)", tmp_path)
    candidate = forced(task, schedule, SPLIT=4, ITEMS=4)
    assert candidate.files["op_kforge.cu"].count("__global__") == 2  # one in each direction
    compare(task, candidate, tmp_path)


FUSED = (
    "return torch.cumsum(torch.cat((torch.zeros_like(x[:, :1]), x), 1)[:-1], 1)",
    "return torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x, 1)[:, :-1]), 1)",
    "return torch.cumsum(x, 1) - x, torch.cumsum(x * (x > 0), 1) * 2 + x",
    "return torch.cumsum(torch.cumprod(torch.sigmoid(x.flip(1)), 1), 1).flip(1)",
    "y = torch.cumsum(torch.softmax(x, 1), 1)\nreturn y / y.amax(1, keepdim=True), y.sum(1)",
)


@pytest.mark.parametrize("body", FUSED)
def test_one_kernel(body: str, tmp_path: Path) -> None:
    """Reversed, exclusive, masked and nested forms, and reductions before and after, are one kernel each."""
    task = function_task(body, "torch.randn(5, 36)", tmp_path)
    candidate = forced(task, "block", BLOCK=64, ITEMS=2)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    compare(task, candidate, tmp_path, [Call((torch.randn(9, w),)) for w in (36, 701)])


def test_both_directions_are_two_kernels(tmp_path: Path) -> None:
    """A kernel walks one way: sums from either end are two, and a padded result is written by a second one."""
    task = function_task("return x.cumsum(1), x.flip(1).cumsum(1).flip(1)", "torch.randn(4, 36)", tmp_path)
    compare(task, forced(task, "warp", ITEMS=2), tmp_path)
    task = function_task("return F.pad(x.cumsum(1), (1, 0))", "torch.randn(4, 36)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("kind", ("bfloat16", "float64", "int64", "bool"))
def test_dtypes(kind: str, tmp_path: Path) -> None:
    """Half types are summed in double and rounded once; integers widen as in torch; booleans are counted."""
    values = f"torch.randint(0, 3, (4, 200)).to(torch.{kind})"
    body = "return x.cumsum(1), x.cummax(1)"
    if "float" in kind:
        values = f"torch.randn(4, 200, dtype=torch.{kind})"
    task = function_task(body, values, tmp_path)
    compare(task, forced(task, "block", BLOCK=64, ITEMS=2), tmp_path)


def test_long_sum_of_one_sign(tmp_path: Path) -> None:
    """A long row of positive values is as exact as a sum in double, tiles or no tiles."""
    task = function_task("return x.cumsum(0)", "torch.rand(100000)", tmp_path)
    for schedule in ("block", "look_back"):
        compare(task, forced(task, schedule, BLOCK=128), tmp_path)


def test_few_long_rows_have_many_blocks(tmp_path: Path) -> None:
    """Where rows are too few for the GPU the first proposal gives each tile a block, which its launch decides."""
    task = function_task("return x.cumsum(1)", "torch.randn(2, 20000)", tmp_path)
    candidate = proposals(task)[0]
    assert "rows < 1056 and cols > 8192" in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path, [task.make_call(), Call((torch.randn(3, 700),))])


def test_nothing_and_one(tmp_path: Path) -> None:
    """Empty rows give empty results; a dimension of one is its own running sum, at index 0."""
    task = function_task("return x.cumsum(1), x.cummax(1)", "torch.randn(3, 0)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)
    task = function_task("return x.cumsum(1), x.cummax(1)", "torch.randn(3, 1)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)
