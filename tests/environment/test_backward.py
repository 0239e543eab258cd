"""The judge on forward/backward pairs: right ones pass, wrong gradients and missing ones do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kforge.environment import evaluate, prepare
from kforge.environment.backward import plan_for, timed_variants
from kforge.environment.json import dumps, loads
from kforge.environment.preparation import Prepared
from kforge.environment.report import Report, Status
from kforge.kernel.candidate import Candidate
from kforge.task import load_task
from kforge.task.backward import gradient_task

TASK = """import torch


def reference(x, y):
    return torch.tanh(x) * y


def get_inputs():
    return [torch.randn(40, 30), torch.randn(40, 30)]
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Prepared, Candidate]:
    """(the judge's side, the engine's candidate) of a small pair."""
    from kforge.engine import propose_pair

    folder = tmp_path_factory.mktemp("pair")
    (folder / "gated.py").write_text(TASK)
    prepared = prepare(gradient_task(load_task(folder / "gated.py")), "cpu", folder=folder / "work")
    return prepared, next(propose_pair(prepared.task, prepared.capture(), arch="sm_90a", device="cpu"))


def _judged(pair: tuple[Prepared, Candidate], zygote: object, old: str = "", new: str = "", **more: object) -> Report:
    prepared, candidate = pair
    if old:
        assert old in candidate.files[candidate.module]
        text = candidate.files[candidate.module].replace(old, new)
        candidate = replace(candidate, files={**candidate.files, candidate.module: text})
    options = {"zygote": zygote, "reference": prepared, "repro": None} | more
    return evaluate(prepared.task, candidate, "quick", **options)  # type: ignore[arg-type]


def test_a_right_pair_is_verified(pair: tuple[Prepared, Candidate], zygote: object) -> None:
    """Both gradients, every kind of upstream gradient, and calls that need only some; the report says so."""
    report = _judged(pair, zygote)
    assert report.status is Status.VERIFIED, report.failure
    assert report.backward is not None
    assert report.backward.gradients == ("x", "y")
    assert {"dense upstream", "upstream of stride 0", "strided upstream", "only the first gradient"} <= set(
        report.backward.judged
    )
    assert loads(dumps(report)).backward == report.backward


def test_a_gradient_for_ones_only_is_wrong(pair: tuple[Prepared, Candidate], zygote: object, tmp_path: Path) -> None:
    """A backward that ignores its upstream gradient passes `sum().backward()` and nothing else; repro.py shows it."""
    old, new = (
        "differentiate(x, y, grad_output)\n        return",
        "differentiate(x, y, torch.ones_like(grad_output))\n        return",
    )
    report = _judged(pair, zygote, old, new, repro=tmp_path)
    assert report.status is Status.WRONG
    assert "out[1]" in report.failure
    script = Path(str(report.repro)).read_text()
    assert "differentiating(module, Gradients.read" in script
    compile(script, "repro.py", "exec")


def test_a_forward_without_a_backward_is_wrong(pair: tuple[Prepared, Candidate], zygote: object) -> None:
    """Right outputs that lead to no gradient: never silence."""
    report = _judged(pair, zygote, "return Differentiable.apply(x, y)", "return compute(x.detach(), y.detach())")
    assert report.status is Status.WRONG
    assert "out[1]" in report.failure


def test_plans_hold_each_kind_and_time_none_of_them(pair: tuple[Prepared, Candidate]) -> None:
    """Required cases of a pair are in every plan; only op.py's own variants are timed."""
    task = pair[0].task
    for name in ("quick", "standard", "full"):
        plan = plan_for(name, task)
        required = {case.variant for case in plan.cases if not case.extra}
        assert {1, 2, 3, 4} <= required
        assert timed_variants(task, plan) == [0]


def test_a_plain_task_keeps_its_plan(prepared: Callable[[str], Prepared]) -> None:
    """Without gradients nothing changes."""
    from kforge.environment.inputs import make_plan

    task = prepared("softmax").task
    assert plan_for("standard", task) == make_plan("standard", task.n_variants)
