"""What an attempt was worth, as one number: CUDA Agent's milestones, or the logarithm of the speed-up.

Both know failures; an untimed run (no GPU) can say right or wrong and nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kforge.environment.report import Status
from kforge.errors import UsageError

if TYPE_CHECKING:
    from kforge.environment.report import Report

Reward = Callable[["Report"], float]

# Published (CUDA Agent): wrong, right, and over 5 % faster than eager, than eager and the compiler.
MILESTONES = (-1.0, 1.0, 2.0, 3.0)
MARGIN = 1.05

# Ours. A wrong attempt counts like a kernel e times slower; a right one, however slow, for a little more than that;
# what was built and cannot run here (GPU only, and no GPU) for as much as the baseline, as nothing is known of it.
WRONG = -1.0
RIGHT_AT_LEAST = -0.9
UNKNOWN = 0.0


def milestone(report: Report) -> float:
    """-1 wrong, 1 right, 2 over 5 % faster than eager, 3 over 5 % faster than eager and torch.compile.

    Over means more than: exactly 5 % is not enough. Every torch.compile baseline that was timed must be beaten; where
    none was, 2 is the most.
    """
    wrong, right, eager, compiled = MILESTONES
    if report.status is Status.BUILT:
        return UNKNOWN
    if report.status is not Status.VERIFIED:
        return wrong
    gains = gains_over(report.times_ms)
    compilers = [gain for name, gain in gains.items() if name.startswith("compile")]
    if not gains.get("eager", 0.0) > MARGIN:
        return right
    return compiled if compilers and min(compilers) > MARGIN else eager


def log_speedup(report: Report) -> float:
    """ln of the speed-up over the judge's baseline; 0 for right and untimed; WRONG for every failure."""
    return reward_of(report.status.value, report.speedup.ratio if report.speedup else None)


def reward_of(status: str, speedup: float | None) -> float:
    """The same from a status and a speed-up alone."""
    if status == Status.BUILT:
        return UNKNOWN
    if status != Status.VERIFIED:
        return WRONG
    return max(math.log(speedup), RIGHT_AT_LEAST) if speedup and speedup > 0 else 0.0


def gains_over(times_ms: Mapping[str, float]) -> dict[str, float]:
    """Time of each baseline over the candidate's; empty where the candidate was not timed."""
    ours = times_ms.get("candidate")
    if not ours:
        return {}
    return {name: ms / ours for name, ms in times_ms.items() if name != "candidate"}


REWARDS: dict[str, Reward] = {"log": log_speedup, "milestone": milestone}


def reward_named(name: str) -> Reward:
    """The reward of this name. UsageError lists what exists."""
    if name not in REWARDS:
        raise UsageError(f"{name!r} is not a reward", "choose " + ", ".join(REWARDS))
    return REWARDS[name]
