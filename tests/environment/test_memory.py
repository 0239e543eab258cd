"""The memory gate on the emulator: what no value shows is found, named with its line, and shown again by repro.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hand_written as kernels
import pytest

from kforge.environment import memory
from kforge.environment.inputs import make_plan
from kforge.environment.report import Report, Status
from tests.patience import PATIENCE_S

NO_BARRIER = (
    "if (t < s) part[t] += part[t + s];\n        __syncthreads();",
    "if (t < s) part[t] += part[t + s];",
)
Judge = Callable[..., Report]
PAST = ("    if (i < n) {", "    if (i == n - 1 && scale[width] == 12345.678f) y[0] = 0.f;\n    if (i < n) {")
TWICE = (
    "    float sum = 0.f;",
    "    part[t / 2] = m + t;\n    __syncthreads();\n    float sum = 0.f;",
)
GIVEN = (
    "        x = x.contiguous()\n        y = torch.empty_like(x)",
    "        given, x = x, x.contiguous()\n        y = torch.empty_like(x)",
)


def gate(report: Report) -> tuple[bool | None, str]:
    """Whether the gate passed, and its words."""
    found = next(g for g in report.gates if g.name == "memory")
    return found.passed, found.detail


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate runs in every plan."""
    monkeypatch.setenv("KFORGE_EMULATOR", "checked")


def test_a_right_kernel_passes_and_its_cost_is_told(judge: Judge, checked: None) -> None:
    """Both modes ran, with their seconds; the detectors of the gate have looked."""
    report = judge("softmax", kernels.candidate("softmax"))
    passed, words = gate(report)
    assert report.status is Status.VERIFIED and passed and "checked " in words and "traced " in words
    assert {"race", "out_of_bounds"} <= {d.name for d in report.detectors if not d.fired}


def test_a_read_beyond_a_parameter_is_wrong(judge: Judge, checked: None) -> None:
    """An access that no value shows: kernel, line, bytes and parameter are named, and repro.py shows it again."""
    report = judge("affine", kernels.candidate("affine", PAST))
    passed, words = gate(report)
    assert report.status is Status.WRONG and passed is False
    assert "affine_kforge.cu:4: affine: read of 4 bytes out of bounds at byte 384 of scale (384 bytes)" in words
    assert "out_of_bounds" in {d.name for d in report.detectors if d.fired}
    assert report.repro is not None
    out = subprocess.run(
        [sys.executable, report.repro], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert out.returncode == 0, out.stderr
    assert "run_checked, launch 0: affine_kforge.cu:4: affine: read of 4 bytes" in out.stdout
    assert "kforge.environment" not in Path(report.repro).read_text()


def test_a_race_that_no_value_shows_is_wrong(judge: Judge, checked: None) -> None:
    """Two threads write different values to one place which is overwritten later: both lines are named."""
    report = judge("softmax", kernels.candidate("softmax", TWICE))
    passed, words = gate(report)
    assert report.status is Status.WRONG and passed is False
    assert "write races with the write at softmax_kforge.cu" in words and "of part" in words
    assert "race" in {d.name for d in report.detectors if d.fired}


@pytest.mark.parametrize("plan", ["quick", "standard"])
def test_a_wrong_answer_that_a_race_explains_names_both_lines(judge: Judge, plan: str) -> None:
    """A barrier of the reduction was left out: the values are wrong, and the report says which accesses race."""
    report = judge("softmax", kernels.candidate("softmax", NO_BARRIER), plan)
    assert report.status is Status.WRONG
    values, _, race = report.failure.partition("; traced: ")
    assert values.startswith("variant 0, ") and ("element" in values or "mask differs" in values)
    at = r"softmax_kforge\.cu:(\d+)"
    lines = re.match(
        rf"{at}: softmax_rows: (?:read|write) races with the (?:read|write) at {at} on byte \d+ of part", race
    )
    assert lines and set(lines.groups()) <= {"22", "24", "26"} and "24" in lines.groups()
    assert "race" in {d.name for d in report.detectors if d.fired}


def test_a_wrong_answer_without_a_race_is_told_as_it_was(judge: Judge) -> None:
    """Traced because threads share memory, and nothing is added where their accesses are ordered."""
    report = judge("softmax", kernels.candidate("softmax", ("expf(in[c] - m) / sum", "expf(in[c] - m) * sum")))
    assert report.status is Status.WRONG and "traced" not in report.failure
    assert "race" not in {d.name for d in report.detectors}


def test_a_kernel_without_shared_memory_is_not_traced(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that do not work together cannot race within a block: no process is started for it."""
    monkeypatch.setattr(memory, "after_wrong", None)  # would raise
    report = judge("affine", kernels.candidate("affine", ("v < 0.f", "v < 1.f")))
    assert report.status is Status.WRONG


def test_quick_leaves_it_out_by_name(judge: Judge) -> None:
    """Plan quick has no time for it and says so."""
    assert gate(judge("affine", kernels.candidate("affine"))) == (None, "not in plan quick")


def test_inputs_too_large_are_a_reason(judge: Judge, checked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no inputs of the plan are small enough, nothing fails and the reason is among what was not tested."""
    monkeypatch.setattr(memory, "CASE_BYTES", 16)
    report = judge("affine", kernels.candidate("affine"))
    passed, words = gate(report)
    assert (
        report.status is Status.VERIFIED
        and passed is None
        and words.startswith("checked and traced not run: no inputs")
    )
    assert words in report.not_tested


def test_too_little_time_is_a_reason(judge: Judge, checked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode that would take longer than the plan gives is not run, and says how long it would take."""
    monkeypatch.setattr(memory, "ALWAYS_S", 1e-9)
    monkeypatch.setitem(memory.BUDGET_S, "quick", 1e-9)
    report = judge("affine", kernels.candidate("affine"))
    passed, words = gate(report)
    assert report.status is Status.VERIFIED and passed is None and "checked not run: would take about" in words


def test_a_budget_that_is_over_is_a_reason(prepared: Callable[[str], Any]) -> None:
    """No process is started that would end long after the budget, and the gate says that it did not run."""
    found = memory.Examination()

    def started(*_: Any) -> Any:
        pytest.fail("a process was started")

    memory.on_emulator(prepared("softmax"), make_plan("standard"), started, started, found, until=0.0)
    assert not found.ran and found.detail == "checked and traced not run: no time left in the budget"


def test_the_smallest_and_a_ragged_size_are_always_examined(
    judge: Judge, checked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no time is left, three cases run all the same, and find what the last block reads; the rest is listed."""
    monkeypatch.setitem(memory.BUDGET_S, "standard", 1e-9)
    right = judge("affine", kernels.candidate("affine"), "standard")
    passed, words = gate(right)
    assert right.status is Status.VERIFIED and passed and words.startswith("checked ") and "no time" not in words
    (left,) = [text for text in right.not_tested if "to check and trace" in text]
    assert left.startswith("no time left in plan standard to check and trace 5 of 8 inputs: variant 0, ")
    wrong = judge("affine", kernels.candidate("affine", ("    if (i < n) {", "    if (i <= n) {")), "standard")
    assert wrong.status is Status.WRONG and "out of bounds" in wrong.failure


def test_vectors_off_their_alignment_are_wrong(judge: Judge) -> None:
    """What a GPU refuses and this processor reads: a vector at an address one element past its alignment."""
    element = "const float4 q = ((const float4*)x)[i / 4];\n        const float e[4] = {q.x, q.y, q.z, q.w};\n"
    line = next(line for line in kernels.SOURCES["affine"][1].splitlines() if "x[i]" in line)
    vectors = (line, f"        {element}{line.replace('x[i]', 'e[i % 4]')}")
    report = judge("affine", kernels.candidate("affine", vectors), "standard")
    assert report.status is Status.WRONG and "misaligned" in report.failure and "offset" in report.failure


def test_contiguous_and_ragged_come_first(prepared: Callable[[str], object]) -> None:
    """The smallest inputs, then the smallest whose sizes divide by no tile, both as dense as they were made."""
    from kforge.environment.inputs import make_plan

    cases = memory.smallest(prepared("softmax"), make_plan("standard").cases, memory.CASE_BYTES)  # type: ignore[arg-type]
    (first, call), (second, _) = cases[:2]
    sizes = [sum(t.numel() for t in given.args) for _, given in cases]
    assert (first.layout, second.layout) == ("contiguous", "contiguous") and second.shape in memory.RAGGED
    assert sum(t.numel() for t in call.args) == min(sizes) and len(cases) == memory.CASES
