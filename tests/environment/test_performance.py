"""The performance gate on the host's clock: what is timed, confirmed and kept; a whole step; the user's baseline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hand_written
import pytest

from kforge.environment import ladder, performance
from kforge.environment.context import composite, time_step
from kforge.environment.detectors import Watch
from kforge.environment.inputs import Plan, make_plan
from kforge.environment.ladder import ranking, timing_call, user_baseline
from kforge.environment.performance import Extras, Measurement
from kforge.environment.preparation import Prepared
from kforge.environment.report import Speedup, VariantResult, Verdict
from kforge.environment.target import share_emulator
from kforge.errors import UsageError
from kforge.profiling.baselines import BASELINES
from kforge.profiling.timing import Effort
from kforge.worker import Child, Zygote

COMPILED = [name for name in BASELINES if name != "eager"]


@pytest.fixture
def softmax(prepared: Callable[[str], Prepared], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prepared:
    """The softmax task with eager as its only baseline (compiling takes seconds), rankings below tmp_path."""
    monkeypatch.setattr(ladder, "_path", lambda ready, variant: tmp_path / "rankings" / f"{variant}.json")
    ready = prepared("softmax")
    monkeypatch.setattr(ready, "baselines", dict.fromkeys(COMPILED))
    monkeypatch.setattr(performance, "_NOISE", {("cpu", length): 0.02 for length in range(-9, 9)})  # a quiet machine's
    return ready


@pytest.fixture
def fork(zygote: Zygote, tmp_path: Path) -> Callable[[str], Child]:
    """As an evaluation forks: fork("build") and fork("run") share one folder."""
    box = tmp_path / "box"
    readable = share_emulator(box)
    return lambda phase: zygote.fork(box, "cpu", phase, readable=readable)


def built(ready: Prepared, fork: Callable[[str], Child]) -> Callable[[str], Child]:
    """`fork` after the kernels of the softmax candidate have been built."""
    with fork("build") as child:
        child.load(hand_written.candidate("softmax"), ready.task.init_call(), {})
        child.warm(ready.task.make_call(0, 0))
    return fork


def measured(
    ready: Prepared, plan: Plan, zygote: Zygote, fork: Callable[[str], Child], **extras: Any
) -> dict[str, Any]:
    candidate = hand_written.candidate("softmax")
    found = Measurement(ready, candidate, zygote, plan, None, Watch(), built(ready, fork), Extras(**extras))
    with found.fork("run") as child:
        return found.run(child)


def test_plan_standard_times_plain_calls_and_says_what_stands_beside_them(
    softmax: Prepared, zygote: Zygote, fork: Callable[[str], Child]
) -> None:
    """Whatever the verdict on emulated kernels: both sides, their samples, host times and the first call are there."""
    found = measured(softmax, make_plan("standard", 1), zygote, fork)
    assert found["verdict"] is not Verdict.UNTIMED
    (variant,) = found["variants"]
    assert {(s.name, s.wrapper) for s in variant.samples} >= {("candidate", "plain"), ("eager", "plain")}
    assert variant.basis == "events, cold L2" and found["speedup"].vs == "eager"
    assert found["times_ms"].keys() == {"candidate", "eager"}
    assert found["costs"].call_us.keys() == {"candidate", "eager"} and found["costs"].first_call_s > 0


@pytest.mark.parametrize(
    ("first", "second", "verdict", "sure"),
    [
        (Verdict.FASTER, Verdict.FASTER, Verdict.FASTER, True),
        (Verdict.FASTER, Verdict.SAME, Verdict.UNCLEAR, False),
        (Verdict.SLOWER, Verdict.SLOWER, Verdict.SLOWER, True),
        (Verdict.SAME, None, Verdict.SAME, True),
    ],
)
def test_faster_is_final_only_when_a_second_process_says_so(
    softmax: Prepared,
    zygote: Zygote,
    fork: Callable[[str], Child],
    monkeypatch: pytest.MonkeyPatch,
    first: Verdict,
    second: Verdict | None,
    verdict: Verdict,
    sure: bool,
) -> None:
    """Of two processes both must say FASTER, or SLOWER; SAME needs no second."""
    told = [first, second]
    forks: list[str] = []

    def counted(phase: str) -> Child:
        forks.append(phase)
        return fork(phase)

    def variant(*_: Any, **__: Any) -> tuple[VariantResult, tuple[str, ...]]:
        said = told.pop(0)
        assert said is not None
        return VariantResult("variant 0", said, Speedup("eager", 1.0, (0.9, 1.1), 0.01)), ("eager",)

    monkeypatch.setattr(Measurement, "variant", variant)
    found = measured(softmax, make_plan("standard", 1), zygote, counted)
    assert found["verdict"] is verdict and found["confirmed"] is sure
    assert forks == ["build", "run"] + (["run"] if second else [])


def test_plan_quick_is_provisional(softmax: Prepared, zygote: Zygote, fork: Callable[[str], Child]) -> None:
    """One process, the verdict not confirmed, and the seconds by stage."""
    found = measured(softmax, make_plan("quick", 1), zygote, fork)
    assert found["verdict"] is not Verdict.UNTIMED and not found["confirmed"]
    assert {"fork", "calibration", "rounds", "noise"} <= found["stages"].keys()


def test_beyond_a_budget_no_baseline_is_compiled(
    softmax: Prepared, zygote: Zygote, fork: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ladder is neither compiled nor ranked; those that are there are timed, and the verdict is provisional."""
    monkeypatch.setattr(performance, "ranking", lambda *_: pytest.fail("ranked"))
    monkeypatch.setitem(softmax.baselines, "compile_reduce_overhead", lambda x: x)
    plan, candidate = make_plan("standard", 1), hand_written.candidate("softmax")
    late = Measurement(softmax, candidate, zygote, plan, None, Watch(), fork, until=0.0)
    assert late.functions(0).keys() == {"eager", "compile_reduce_overhead"} and late.provisional
    assert "no time left in the budget for baselines beyond eager" in late.warnings[0]


def test_inputs_to_time_with_are_drawn_once_and_never_shared(softmax: Prepared) -> None:
    """Each use has the same values in memory of its own, whatever the one before did to them."""
    first = timing_call(softmax, 0).args[0]
    values = first.clone()
    first.zero_()
    assert timing_call(softmax, 0).args[0].equal(values) and values.any()


def test_the_users_baseline_is_timed_beside_the_reference(
    softmax: Prepared, zygote: Zygote, fork: Callable[[str], Child], tmp_path: Path
) -> None:
    """A function of a file, called with the task's inputs, appears under its name."""
    (tmp_path / "mine.py").write_text("import torch\n\ndef fused(x):\n    return torch.softmax(x, dim=-1)\n")
    found = measured(softmax, make_plan("quick", 1), zygote, fork, baseline=f"{tmp_path / 'mine.py'}:fused")
    assert "user:fused" in found["times_ms"]


def test_a_users_baseline_must_compute_the_same(softmax: Prepared, tmp_path: Path) -> None:
    """Another function, a missing one, one that raises: each is refused in words."""
    (tmp_path / "mine.py").write_text(
        "def other(x):\n    return x * 2\n\ndef broken(x):\n    raise ValueError('no such luck')\n"
    )
    for name, words in (("other", "does not compute"), ("missing", "has no"), ("broken", "no such luck")):
        with pytest.raises(UsageError) as caught:
            user_baseline(softmax, f"{tmp_path / 'mine.py'}:{name}")
        assert words in caught.value.message


def test_the_ranking_is_kept_and_times_are_not(softmax: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is read back without timing anything; what is on disk holds names only; damage makes it anew."""
    assert ranking(softmax, 0) == ("eager",)
    path = ladder._path(softmax, 0)
    assert json.loads(path.read_text()) == ["eager"]
    monkeypatch.setattr(ladder, "_alone", lambda *_, **__: pytest.fail("timed again"))
    assert ranking(softmax, 0) == ("eager",)
    path.write_text("[")
    monkeypatch.setattr(ladder, "_alone", lambda *_, **__: {"eager": 2.0, "compile_default": 1.0})
    assert ranking(softmax, 0) == ("compile_default", "eager")


def test_the_ladder_says_what_it_compiles_and_ends(softmax: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once compiling took too long, only eager and compile-default are made; the rest is named and no order kept."""
    monkeypatch.setattr(ladder, "_COMPILING_S", -1.0)
    monkeypatch.setattr("kforge.profiling.baselines.make_baseline", lambda name, module: module)
    monkeypatch.setattr(softmax, "baselines", {})
    told: list[str] = []
    assert set(ranking(softmax, 0, told.append)) == {"eager", "compile_default"}
    assert told[0] == "compiling baseline compile_default" and not ladder._path(softmax, 0).exists()
    assert len(told) == 3 and all("left out" in line for line in told[1:]) and "max_autotune" in told[-1]


STEP = """import torch

def model(operator):
    linear = torch.nn.Linear(8, 64)
    x = torch.ones(4, 8)
    return lambda: operator(linear(x)){change}
"""


def test_a_whole_step_is_timed_with_and_without_the_candidate(
    softmax: Prepared, fork: Callable[[str], Child], tmp_path: Path
) -> None:
    """The same random weights on both sides: outputs agree, both sides have samples."""
    script = tmp_path / "step.py"
    script.write_text(STEP.format(change=""))
    effort = Effort(rounds=3, patience=1, budget_s=0.0)
    timing, words = time_step(softmax, hand_written.candidate("softmax"), f"{script}:model", fork, None, effort)
    assert words == () and set(timing.names) == {"candidate", "reference"}
    with pytest.raises(UsageError):
        time_step(softmax, hand_written.candidate("softmax"), f"{script}:absent", fork, None, effort)


def test_a_step_that_comes_out_otherwise_is_said(
    softmax: Prepared, fork: Callable[[str], Child], tmp_path: Path
) -> None:
    """A step that depends on which side it runs on gives a warning, not silence."""
    script = tmp_path / "step.py"
    script.write_text(STEP.format(change=" * (1 + hasattr(operator, 'kernel_of_mine'))"))
    candidate = hand_written.candidate("softmax")
    text = candidate.files[candidate.module].replace(
        "class ModelNew(nn.Module):", "class ModelNew(nn.Module):\n    kernel_of_mine = True\n"
    )
    assert text != candidate.files[candidate.module]
    changed = replace(candidate, files={**candidate.files, candidate.module: text})
    _, words = time_step(softmax, changed, f"{script}:model", fork, None, Effort(rounds=3, patience=1, budget_s=0.0))
    assert len(words) == 1 and "differ" in words[0]


def test_the_composite_keeps_the_candidates_files(tmp_path: Path) -> None:
    """The step's module and the script stand beside the candidate's own files, which do not change."""
    script = tmp_path / "step.py"
    script.write_text(STEP.format(change=""))
    candidate = hand_written.candidate("softmax")
    whole = composite(candidate, f"{script}:model", 7)
    assert {name: whole.files[name] for name in candidate.files} == candidate.files
    assert "torch.manual_seed(7)" in whole.files[whole.module]
