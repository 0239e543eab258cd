"""What kind of work is left, by rules and without a model: KernelOPT's strategy analyst.

Near-optimal if max(compute SOL, memory SOL) > 80 %; else memory- or compute-bound by the larger; underutilised if both
are low and equal. What "low" and "equal" mean is not published: under 40 % and within 10 points are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NEAR_OPTIMAL = 0.80
LOW = 0.40
EQUAL = 0.10


class Kind(StrEnum):
    """What keeps the candidate from being faster."""

    NEAR_OPTIMAL = "near-optimal"
    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    UNDERUTILISED = "underutilised"
    LATENCY = "latency-bound"
    UNKNOWN = "unknown"


_ADVICE = {
    Kind.NEAR_OPTIMAL: "little is left: only a different algorithm that moves fewer bytes or does less work can gain",
    Kind.MEMORY: "move fewer bytes (fuse, store no intermediates), then move them better (wide, coalesced, in flight)",
    Kind.COMPUTE: "do less arithmetic or do it on faster units (tensor cores, fewer special functions, half "
    "precision only where the acceptance rule allows it)",
    Kind.UNDERUTILISED: "neither unit is busy: more parallelism, loads in flight, fewer barriers, better occupancy",
    Kind.LATENCY: "the work is small: fewer launches, one kernel, enough blocks to fill the GPU at once",
    Kind.UNKNOWN: "nothing is measured yet: first a right candidate, then its profile",
}


@dataclass(frozen=True)
class Strategy:
    """kind of work left, the figures it rests on in words, what to do. compute and memory: shares of the ceilings."""

    kind: Kind
    reason: str
    compute: float | None = None
    memory: float | None = None

    @property
    def advice(self) -> str:
        """What to try, in one sentence."""
        return _ADVICE[self.kind]


def strategy(profile: Mapping[str, Any] | None) -> Strategy:
    """From the object of `kforge profile --json`; without times the analytic bound alone, and it says so."""
    roofline = (profile or {}).get("roofline") or {}
    bound = roofline.get("bound")
    if bound is None:
        return Strategy(Kind.UNKNOWN, "no roofline: nothing was counted")
    took = (roofline.get("times_ms") or {}).get("candidate")
    compute, memory = (_share(roofline.get(name), took) for name in ("compute_ms", "memory_ms"))
    if compute is None or memory is None:
        kinds = {"memory": Kind.MEMORY, "compute": Kind.COMPUTE, "latency": Kind.LATENCY}
        return Strategy(kinds.get(bound, Kind.UNKNOWN), f"{bound} bound by analysis; nothing is timed here")
    figures = f"compute {compute:.0%} and memory {memory:.0%} of what this GPU can do"
    if max(compute, memory) > NEAR_OPTIMAL:
        kind = Kind.NEAR_OPTIMAL
    elif bound == "latency":
        kind = Kind.LATENCY
    elif max(compute, memory) < LOW and abs(compute - memory) <= EQUAL:
        kind = Kind.UNDERUTILISED
    else:
        kind = Kind.MEMORY if memory >= compute else Kind.COMPUTE
    return Strategy(kind, figures, compute, memory)


def _share(floor: float | None, took: float | None) -> float | None:
    return None if floor is None or not took else floor / took
