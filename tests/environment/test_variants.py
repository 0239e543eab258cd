"""A task's input variants are its own inputs: every plan has each, and a candidate has to serve each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hand_written as kernels
import pytest
import torch

from kforge.environment import evaluate, preparation
from kforge.environment.expected import Skip
from kforge.environment.inputs import Case
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.report import Report, Status
from kforge.kernel.candidate import Candidate
from kforge.task import load_task
from kforge.worker import Zygote

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(9, 60)]


def get_input_variants():
    return [lambda: [torch.randn(3, 4, 50)]]
"""
GUARD = """if x.dim() != 2:
            raise ValueError(f"x has {x.dim()} dimensions, these kernels take 2")
        x ="""
ANY_RANK = ("x.size(0), x.size(1)", "x.numel() // x.size(-1), x.size(-1)")  # with columns of none there are no rows
FIRST_TWO = ("x.size(0), x.size(1)", "x.size(0), x.numel() // x.size(0)")  # the last two taken for one

Judged = Callable[..., Report]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A softmax over matrices whose second variant has three dimensions."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "softmax.py").write_text(TASK)
    return prepare(load_task(folder / "softmax.py"), folder=folder / "work")


@pytest.fixture
def judged(ready: Prepared, zygote: Zygote, tmp_path: Path) -> Judged:
    """judged(candidate, plan) -> Report, on the emulator."""

    def run(candidate: Candidate, plan: str) -> Report:
        return evaluate(ready.task, candidate, plan, reference=ready, zygote=zygote, repro=tmp_path)

    return run


@pytest.mark.parametrize("plan", ["quick", "standard", "full"])
def test_a_variant_that_is_refused_is_named_in_every_plan(judged: Judged, plan: str) -> None:
    """An error of the candidate's own says nothing against derived shapes; the task's own inputs it has to serve."""
    report = judged(kernels.candidate("softmax", ("x =", GUARD)), plan)
    assert report.status is Status.CRASHED
    first, *frames = report.failure.splitlines()
    said = "ValueError: x has 3 dimensions, these kernels take 2"
    assert first == f"does not serve variant 1 of the task's inputs (x 3 x 4 x 50), contiguous: {said}"
    assert frames[-1] == said and any("in forward" in line for line in frames)


@pytest.mark.parametrize("plan", ["quick", "standard"])
def test_a_candidate_that_serves_every_variant_is_verified(judged: Judged, plan: str) -> None:
    """One required case of each variant is among those that passed, and the report says that it is the only one."""
    report = judged(kernels.candidate("softmax", ANY_RANK), plan)
    assert report.status is Status.VERIFIED, report.failure
    ours = [case for case in report.cases if case.label.startswith("variant 1, ")]
    assert [case.label for case in ours] == ["variant 1, seed 0, x1, contiguous"] and ours[0].passed
    assert f"more than one case of input variant 1 (plan {plan})" in report.not_tested


def test_a_variant_that_is_answered_wrongly_is_wrong_in_plan_quick(judged: Judged) -> None:
    """The right answer to variant 0 says nothing of a variant with another structure."""
    report = judged(kernels.candidate("softmax", FIRST_TWO), "quick")
    assert report.status is Status.WRONG
    assert report.failure.startswith("variant 1, seed 0, x1, contiguous: ")


def test_a_variant_that_the_judge_has_no_memory_for_is_skipped(
    ready: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed with the reason, and no fault of the task; variant 0 is needed, and its error passes."""

    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    other = ready.again()
    monkeypatch.setattr(preparation, "realise", full)
    for ask in (other.expected, other.inputs):
        with pytest.raises(Skip, match="variant 1 does not fit the device's memory"):
            ask(Case(1))
        with pytest.raises(torch.cuda.OutOfMemoryError):
            ask(Case(0))
