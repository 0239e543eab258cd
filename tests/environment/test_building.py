"""What the text of a candidate tells to build may do for plan quick; where it does not, all is built after all."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import hand_written as kernels
import pytest

from kforge.environment import building, evaluation
from kforge.environment.preparation import Prepared
from kforge.environment.report import Report, Status
from kforge.kernel.candidate import Candidate
from kforge.worker import Zygote

Judged = Callable[[Candidate], Report]


@pytest.fixture
def ready(prepared: Callable[[str], Prepared], monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """The softmax task, whose candidates are judged by their text first, as on a GPU."""
    monkeypatch.setattr(evaluation, "told_by_text", lambda of: of.prepared.from_text)
    return prepared("softmax").again()


@pytest.fixture
def judged(ready: Prepared, zygote: Zygote) -> Judged:
    """A report on plan quick."""
    return lambda candidate: evaluation.evaluate(
        ready.task, candidate, "quick", reference=ready, zygote=zygote, timing=False, repro=None
    )


def test_what_the_text_does_not_tell_is_built_after_all(ready: Prepared, judged: Judged) -> None:
    """The emulator's builds are none of the compiler's: the candidate is built in full, in a folder where nothing of
    the first attempt is, and verified with one line a gate. The same candidate then needs no calls on stand-ins."""
    once = f"__syncthreads();  // {uuid4()}"  # no other test has built it
    candidate = kernels.candidate("softmax", ("__syncthreads();", once))
    first = judged(candidate)
    assert first.status is Status.VERIFIED, first.failure
    assert [gate.name for gate in first.gates][:3] == ["static", "build", "correctness"]
    assert "build: forms" in first.stages
    assert not ready.from_text and ready.rooms[candidate.digest].name == f"{candidate.digest}-built"
    ready.from_text = True
    again = judged(candidate)
    assert again.status is Status.VERIFIED and "build: forms" not in again.stages and ready.from_text


def test_what_a_candidate_raises_is_told_as_if_all_had_been_built(ready: Prepared, judged: Judged) -> None:
    """An error of its own is met in the build gate, and says nothing about how the task's other candidates build."""
    report = judged(
        kernels.candidate("softmax", ("y = torch.empty_like(x)", "y = torch.empty_like(x, dtype=torch.none)"))
    )
    assert report.status is Status.CRASHED and report.gates[-1].name == "build" and len(report.gates) == 2
    assert "torch.none" in report.failure and ready.from_text


def test_in_haste_no_kernel_is_built_that_nothing_launches(
    prepared: Callable[[str], Prepared], zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan quick on a GPU neither waits for such a kernel nor fails by it, and has the figures of those it calls; that
    holds as well where a worker has built ahead, which met the broken kernel. The report names it as not compiled."""
    ready = prepared("softmax").again()

    def judged() -> Report:
        broken = _with_another("x[0] = y;", '"other"')
        return evaluation.evaluate(ready.task, broken, "quick", reference=ready, zygote=zygote, repro=None)

    assert judged().status is Status.BUILD_FAILED
    monkeypatch.setattr(building, "_in_haste", lambda of: True)
    for ahead in (False, True):
        monkeypatch.setattr(evaluation, "told_by_text", lambda of, ahead=ahead: ahead)
        report = judged()
        assert report.status is Status.VERIFIED, report.failure
        assert [(build.name, build.registers > 0, build.arch) for build in report.builds] == [
            ("softmax_rows", True, "sm_90a")
        ]
        assert "never launched and not compiled: other" in report.not_tested


def test_kernels_of_computed_names_are_built_and_named(
    prepared: Callable[[str], Prepared], zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the text does not name is compiled all the same, launched or not; in haste it is named as not compiled."""
    ready = prepared("softmax").again()

    def judged(body: str) -> Report:
        made = _with_another(body, '"oth" + "er"')
        return evaluation.evaluate(ready.task, made, "quick", reference=ready, zygote=zygote, repro=None)

    report = judged("x[0] = y;")
    assert report.status is Status.BUILD_FAILED and "other.cu" in report.failure
    report = judged("x[0] = 1.f;")
    assert report.status is Status.VERIFIED and {b.name: b.launches == 0 for b in report.builds} == {
        "softmax_rows": False,
        "other": True,
    }
    assert "never launched: other" in report.not_tested
    monkeypatch.setattr(building, "_in_haste", lambda of: True)
    report = judged("x[0] = y;")
    assert report.status is Status.VERIFIED and "never launched and not compiled: other" in report.not_tested


def _with_another(body: str, name: str) -> Candidate:
    """The softmax candidate with a kernel besides, which nothing launches. name: a Python expression."""
    own = kernels.candidate("softmax")
    other = f'other = Kernel({name}, source="other.cu", grid="1", block="32")\n\n\nclass ModelNew'
    source = f'extern "C" __global__ void other(float* x) {{ {body} }}\n'
    module = own.files[own.module].replace("class ModelNew", other)
    return Candidate(own.module, own.files | {"other.cu": source, own.module: module})


def test_only_plan_quick_and_own_kernels_are_judged_by_their_text(
    prepared: Callable[[str], Prepared], zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what was built ahead: not the emulator's, a larger plan's or another maker's kernels, nor after a miss."""
    ready = prepared("softmax").again()
    own = kernels.candidate("softmax")
    triton = Candidate(own.module, own.files | {own.module: f"import triton\n{own.files[own.module]}"})

    def told(candidate: Candidate, plan: str = "quick", built: bool = True) -> bool:
        of = evaluation.Evaluation(ready, candidate, plan, "sm_90a", lambda *_: None, zygote, None, None)
        of.processes.built = built
        return building.told_by_text(of)

    assert not told(own)
    monkeypatch.setattr(ready, "device", "cuda:0")
    assert told(own) and not told(own, built=False) and not told(own, "standard") and not told(triton)
    ready.from_text = False
    assert not told(own)
