"""A plan's time is work, not waiting: a busy machine judges as much as an idle one, and says where it cannot."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from kforge.environment import allowance
from kforge.environment.allowance import Allowance


@dataclass
class Process:
    """Stands for a candidate's process that has used so much processor time."""

    used: float = 3.0

    def processor_s(self) -> float:
        return self.used


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is."""
    monkeypatch.setattr(allowance, "PATIENCE", 1e6)


def test_waiting_costs_nothing_on_the_emulator_and_the_candidates_work_does(patient: None) -> None:
    """Time that passes while others use the processor leaves it as it was; the process's own seconds are taken off."""
    process = Process()
    left = Allowance("cpu", 0.02, process)  # type: ignore[arg-type]
    time.sleep(0.03)
    assert not left.over()
    process.used += 0.5
    assert left.over() and not left.over(more_s=10.0)
    assert left.why("standard") == "no time left in plan standard"


def test_the_judges_own_work_counts(patient: None) -> None:
    """A thread that computes uses its allowance up by itself."""
    left = Allowance("cpu", 0.005, Process())  # type: ignore[arg-type]
    while not left.over():
        sum(range(1000))
    assert not left.late


def test_a_machine_too_busy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is an end for somebody who waits, far beyond the work, and the report says that it was that one."""
    monkeypatch.setattr(allowance, "PATIENCE", 0.0)
    left = Allowance("cpu", 5.0, Process())  # type: ignore[arg-type]
    time.sleep(0.001)
    assert left.late and left.over(more_s=100.0)
    assert left.why("full") == "no time left in plan full (the machine is busy: 0 s have passed)"


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_budgets_end_is_an_end_and_is_said(device: str) -> None:
    """Whatever work is left: beyond the moment that the caller names nothing more is done, and the words say why."""
    left = Allowance(device, 3600.0, Process(), until=time.monotonic() - 1.0)  # type: ignore[arg-type]
    assert left.over(more_s=3600.0) and not left.late
    assert left.why("standard") == "no time left in the budget for more of plan standard"
    assert not Allowance(device, 3600.0, Process(), until=time.monotonic() + 3600.0).over()  # type: ignore[arg-type]


def test_on_a_gpu_the_clock_counts() -> None:
    """Its work is no processor time, and nobody else is on it."""
    left = Allowance("cuda:0", 0.001, Process())  # type: ignore[arg-type]
    time.sleep(0.002)
    assert left.over() and not left.late
