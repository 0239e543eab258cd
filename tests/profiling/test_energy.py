"""Energy per call from a counter that moves in steps, and who else uses a GPU; on numbers made up here."""

from __future__ import annotations

import os

import pytest

from kforge.profiling.energy import counter, energy_per_call
from kforge.profiling.gpu_state import foreign_users


class Bench:
    """A clock that calls advance, and a counter of `watts` that moves every `step_s`."""

    def __init__(self, call_s: float, watts: float, step_s: float) -> None:
        self.now, self.call_s, self.watts, self.step_s = 0.0, call_s, watts, step_s

    def run(self, calls: int) -> None:
        self.now += calls * self.call_s

    def read(self) -> int:
        return round(self.now // self.step_s * self.step_s * self.watts * 1e3)


@pytest.mark.parametrize("call_s", [2e-5, 1e-3, 0.03])
def test_energy_of_a_call_is_power_times_its_time(call_s: float) -> None:
    """400 W over calls of a known length, with a counter that moves every 100 ms: within one percent."""
    bench = Bench(call_s, 400.0, 0.1)
    found = energy_per_call(bench.run, call_s, bench.read, run_s=4.0, clock=lambda: bench.now)
    assert found is not None and found.mj == pytest.approx(400e3 * call_s, rel=0.01)
    assert found.seconds == pytest.approx(found.calls * call_s)


def test_a_counter_that_stands_still_gives_no_figure() -> None:
    """No step, or one alone, bounds no stretch of calls."""
    bench = Bench(1e-3, 400.0, 10.0)
    assert energy_per_call(bench.run, 1e-3, bench.read, run_s=3.0, clock=lambda: bench.now) is None


def test_without_a_gpu_there_is_no_counter() -> None:
    """The reason is given in words."""
    assert counter("cpu") == "no GPU"


def test_processes_of_our_own_are_no_foreign_users() -> None:
    """This process and those below it are ours, others are named; in another numbering they are only counted."""
    own = os.getpid()
    assert foreign_users([own]) == ()
    (other,) = foreign_users([own, 1])
    assert other.endswith("(1)")
    assert len(foreign_users([10**8 + i for i in range(50)])) >= 40
    assert foreign_users([]) == ()
