"""What a report counts as asked for, and names as not tested: never what a task's inputs cannot be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import hand_written as kernels
import pytest

from kforge.environment import asked
from kforge.environment.asked import possible
from kforge.environment.correctness import Correctness
from kforge.environment.detectors import Watch
from kforge.environment.draws import list_untested
from kforge.environment.expected import Skip
from kforge.environment.inputs import Case, make_plan
from kforge.environment.preparation import Prepared, prepare
from kforge.task import load_task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn({shape})]
"""


def _ready(folder: Path, shape: str) -> Prepared:
    (folder / "softmax.py").write_text(TASK.format(shape=shape))
    return prepare(load_task(folder / "softmax.py"), folder=folder / "work")


def _runs(ready: Prepared, case: Case) -> bool:
    try:
        ready.expected(case)
    except Skip:
        return False
    return True


@pytest.mark.parametrize(("shape", "count"), [("2", 86), ("2, 1", 125)])
def test_what_inputs_can_be_is_told_without_running_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, count: int
) -> None:
    """Of a vector of two numbers no row is one alone and no column can be expanded: exactly what would be skipped."""
    monkeypatch.setattr(asked, "MOST_S", 60.0)
    ready, cases = _ready(tmp_path, shape), make_plan("standard").cases
    found = possible(ready, cases)
    assert found == [case for case in cases if _runs(ready, case)] and len(found) == count


def test_cases_without_time_are_named_only_where_there_are_such_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector has no rows: what was dropped and cannot be is no line of the report."""
    monkeypatch.setattr(asked, "MOST_S", 60.0)
    judge = Correctness(_ready(tmp_path, "2"), kernels.candidate("softmax"), make_plan("standard"), Watch())
    row, column, plus = Case(shape="row"), Case(shape="column", layout="expanded"), Case(shape="plus", extra=True)
    spent = SimpleNamespace(why=lambda plan: f"no time left in plan {plan}")
    list_untested(judge, [row, plus, column], spent)  # type: ignore[arg-type]
    assert judge.result.not_tested == [f"no time left in plan standard: {plus.label}"]
    judge.result.not_tested.clear()
    list_untested(judge, [row, column], spent)  # type: ignore[arg-type]
    assert judge.result.not_tested == []


def test_without_time_to_try_it_a_case_counts_as_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was tried once is not tried again."""
    ready = _ready(tmp_path, "2")
    monkeypatch.setattr(asked, "MOST_S", 60.0)
    assert possible(ready, [Case(shape="row")]) == []
    monkeypatch.setattr(asked, "MOST_S", -1.0)
    assert possible(ready, [Case(shape="row"), Case(shape="tall")]) == [Case(shape="tall")]
