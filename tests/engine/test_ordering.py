"""Sorted rows and their first few: values, indices, NaN and equal elements as torch's stable sort has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import sort as sorts
from kforge.engine.proposing import make_plan
from kforge.errors import NoCandidate
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task, load_model, proposals, task_from

BOTH = "return torch.sort(x, dim=1, stable=True), torch.sort(x, dim=1, descending=True, stable=True)"


def forced(task: Task, schedule: str, **constants: int) -> Candidate:
    """A candidate whose one program uses this schedule, with these constants."""
    plan, (program,) = make_plan(task, capture(task))
    code = {"warp": sorts._warp, "block": sorts._block, "top": sorts._top}[schedule](program, plan.types, program.name)
    assert code is not None
    own = {k: v for k, v in constants.items() if k in code.constants}
    choice = [replace(code, constants={**code.constants, **own}, tuned=(), limit="")]
    return write_candidate(plan, [choice], "a test", None)


def hostile() -> torch.Tensor:
    """Rows with NaN, infinities, zeros of both signs and many equal elements."""
    x = torch.randn(7, 66).round(decimals=1)
    x[1], x[2, 5], x[3, 7], x[4, :40] = -torch.inf, torch.nan, torch.inf, -torch.inf
    x[5, 3] = x[5, 60] = torch.nan
    x[6], x[6, ::2] = 0.0, -0.0
    return x


@pytest.mark.parametrize(("schedule", "constants"), [("warp", {}), ("block", {"BLOCK": 64, "ITEMS": 1})])
def test_sort(schedule: str, constants: dict[str, int], tmp_path: Path) -> None:
    """Both directions, widths on and off the tile: equal elements keep their order, -0.0 its sign."""
    task = function_task(BOTH, "torch.randn(7, 66)", tmp_path)
    candidate = forced(task, schedule, **constants)
    calls = [Call((hostile(),)), *(Call((torch.randn(3, w),)) for w in (1, 128, 129)), Call((torch.randn(40, 5).t(),))]
    compare(task, candidate, tmp_path, calls)


@pytest.mark.parametrize("schedule", ("warp", "block", "top"))
def test_top(schedule: str, tmp_path: Path) -> None:
    """The first few are written without the rest; elements tie, yet the values are right and the indices distinct."""
    task = function_task("return x.topk(5)", "torch.randn(7, 66)", tmp_path)
    candidate = forced(task, schedule, BLOCK=64, ITEMS=2)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    widths = (66, 128) if schedule == "warp" else (66, 500) if schedule == "block" else (66, 5000)
    compare(task, candidate, tmp_path, [Call((torch.randn(3, w),)) for w in widths])
    values = function_task("return x.topk(5)[0], x.topk(5, largest=False)[0]", "torch.randn(7, 66)", tmp_path)
    if schedule == "warp":
        compare(values, forced(values, schedule), tmp_path, [Call((hostile(),))])


def test_top_of_a_rising_row(tmp_path: Path) -> None:
    """Each element is larger than all before it: nothing can be dropped, and the pool is sorted again and again."""
    task = function_task("return x.topk(6)", "torch.randn(2, 70)", tmp_path)
    rising = torch.arange(3000.0).repeat(2, 1)
    rising[1] = rising[1].flip(0)
    compare(task, forced(task, "top", BLOCK=64, ITEMS=2), tmp_path, [Call((rising,))])


def test_fused(tmp_path: Path) -> None:
    """What comes before and after, gathers at the chosen indices and running sums of sorted rows are one kernel."""
    body = "v, i = torch.topk(torch.softmax(x, 1), 8)\nreturn v / v.sum(1, keepdim=True), torch.gather(y, 1, i) + v"
    task = function_task(body, "torch.randn(5, 64), torch.randn(5, 64)", tmp_path, "x, y")
    compare(task, proposals(task)[0], tmp_path)
    body = "y, i = torch.sort(x, dim=1, stable=True)\nreturn y.cumsum(1), i.float() * 2"
    task = function_task(body, "torch.randn(4, 300)", tmp_path)
    candidate = forced(task, "block")
    compare(task, candidate, tmp_path)


def test_single_places(tmp_path: Path) -> None:
    """Medians (NaN where a row has one), k-th values and the only largest, over the last and the first dimension."""
    body = "return x.median(1), x.median(0)[0], x.kthvalue(3, 1), x.topk(1), x.median(), x.topk(1, largest=False)[0]"
    task = function_task(body, "torch.randn(5, 45)", tmp_path)
    x = torch.randn(5, 45)
    x[1, 3] = torch.nan
    compare(task, proposals(task)[0], tmp_path, [task.make_call(), Call((x,))])


@pytest.mark.parametrize("dtype", ("bfloat16", "float64", "int8"))
def test_dtypes(dtype: str, tmp_path: Path) -> None:
    """Keys of 32 and of 64 bits, integers of both signs."""
    values = f"(torch.randn(4, 100) * 50).to(torch.{dtype})"
    task = function_task("return torch.sort(x, dim=1, stable=True), x.topk(4)[0]", values, tmp_path)
    compare(task, proposals(task)[0], tmp_path)


def test_rows_of_one(tmp_path: Path) -> None:
    """Of a single element the index is zero, whatever is looked for."""
    body = "return x.topk(1, 1), x.mode(1), x.median(1), x.argmin(1) + x.amin(1), x.kthvalue(1, 1), x.max(1)"
    task = function_task(body, "torch.randint(9, (6, 1, 3))", tmp_path)
    compare(task, proposals(task)[0], tmp_path)
    with pytest.raises(NoCandidate, match="nothing to compute"):
        proposals(function_task("return x.argmax(1)", "torch.randn(6, 1)", tmp_path))


def test_rows_too_long_are_refused(tmp_path: Path) -> None:
    """A row that no block can hold is not sorted, and the answer names the operator."""
    task = function_task("return x.sort(1)", "torch.randn(2, 6000)", tmp_path)
    with pytest.raises(NoCandidate) as caught:
        proposals(task)
    assert caught.value.operator == "sort"


def test_one_of_the_first_few(tmp_path: Path) -> None:
    """The k-th largest as a bound: the few that are chosen are in memory, and never an index for every element."""
    body = "return x.masked_fill(x < x.topk(8)[0][..., -1:], -1.0)"
    task = function_task(body, "torch.randn(4, 5000)", tmp_path)
    candidate = proposals(task)[0]
    text = candidate.files["op_kforge.py"]
    assert "torch.empty((*x.shape[:-1], 8), dtype=torch.float32" in text and "torch.int64" not in text
    compare(task, candidate, tmp_path, [task.make_call(), Call((torch.randn(3, 70),))])


def test_rows_of_other_lengths(tmp_path: Path) -> None:
    """Rows beyond what a block can hold are refused before a launch; many of them are none; a variant counts."""
    task = function_task("return torch.sort(x, dim=1, stable=True)", "torch.randn(3, 70)", tmp_path)
    model = load_model(proposals(task)[0], tmp_path)()
    with torch.no_grad(), pytest.raises(ValueError, match="rows of at most 4096 elements; these have 4097"):
        model(torch.randn(2, 4097))
    more = task.path.read_text() + "\n\ndef get_input_variants():\n    return [lambda: [torch.randn({})]]\n"
    assert proposals(task_from(more.format("5000, 9"), tmp_path))
    with pytest.raises(NoCandidate, match="rows of more than 4096"):
        proposals(task_from(more.format("2, 5000"), tmp_path))


def test_most_frequent(tmp_path: Path) -> None:
    """The least of the most frequent integers, in any dimension, and a place at which it stands; booleans, too."""
    body = "return x.mode(0)[0], x.mode(-1, keepdim=True)[0], (x > 2).mode(-1)[0], x.mode(-1)[1]"
    task = function_task(body, "torch.randint(5, (12, 33))", tmp_path)
    model, x = load_model(proposals(task)[0], tmp_path)(), torch.randint(5, (9, 40))
    with torch.no_grad():
        *found, place = model(x)
    *wanted, _ = task.make_reference()(x)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert torch.equal(x.gather(1, place[:, None]), wanted[1])
