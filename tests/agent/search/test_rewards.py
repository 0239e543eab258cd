"""Rewards by value: CUDA Agent's milestones and the logarithm of the speed-up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kforge.agent.search.rewards import log_speedup, milestone, reward_named
from kforge.environment.report import Report, Status
from kforge.errors import UsageError
from tests.agent.search.simulator import candidate, report


def _timed(**times: float) -> Report:
    return replace(report(candidate("a"), 1.0), times_ms={"candidate": 1.0, **times})


@pytest.mark.parametrize(
    ("times", "reward"),
    [
        ({"eager": 0.5, "compile_default": 0.5}, 1.0),
        ({"eager": 1.05, "compile_default": 2.0}, 1.0),  # exactly 5 % is not over 5 %
        ({"eager": 1.06, "compile_default": 1.04}, 2.0),
        ({"eager": 1.06}, 2.0),  # the compiler was not timed
        ({"eager": 1.06, "compile_default": 1.06}, 3.0),
        ({"eager": 1.06, "compile_default": 1.06, "compile_max_autotune": 1.0}, 2.0),
        ({}, 1.0),
    ],
)
def test_milestones(times: dict[str, float], reward: float) -> None:
    """1 right, 2 over 5 % faster than eager, 3 over 5 % faster than every compiled baseline as well."""
    assert milestone(_timed(**times)) == reward


@pytest.mark.parametrize("status", [s for s in Status if s not in {Status.VERIFIED, Status.BUILT}])
def test_every_failure_is_wrong(status: Status) -> None:
    """Whatever is not right gets -1 from both rewards."""
    found = report(candidate("a"), None, status=status)
    assert milestone(found) == log_speedup(found) == -1.0


def test_log_speedup() -> None:
    """ln of the speed-up; 0 untimed; a right but very slow kernel stays above a wrong one."""
    assert log_speedup(report(candidate("a"), 0.25)) == pytest.approx(math.log(4))
    assert log_speedup(report(candidate("a"), 1000.0)) == -0.9
    assert log_speedup(report(candidate("a"), None)) == 0.0


def test_untimed_says_right_or_wrong_only() -> None:
    """Without times the rewards have two values, and built without being run is neither."""
    right = report(candidate("a"), None)
    assert (milestone(right), log_speedup(right)) == (1.0, 0.0)
    built = replace(right, status=Status.BUILT)
    assert (milestone(built), log_speedup(built)) == (0.0, 0.0)


def test_unknown_reward_lists_what_exists() -> None:
    """A misspelt name is a usage error with the choices."""
    with pytest.raises(UsageError) as error:
        reward_named("gold")
    assert error.value.hint == "choose log, milestone"
