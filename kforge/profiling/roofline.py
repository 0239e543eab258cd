"""The physical floor of a task, the limit that binds it, and the headroom of a time above it. Pure functions.

Times in milliseconds, as in reports. The rule is CONTRACTS 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from kforge.profiling.ceilings import Ceilings

NO_ROOM = 1.05  # a baseline within this factor of the calibrated floor leaves nothing to win
HACK = 0.9  # a time under this share of the data sheet's floor is not possible
UNGAUGED = frozenset({"int", "special"})  # counted, without a ceiling so far: leaving them out keeps the floor a floor


class Traffic(Protocol):
    """What is counted from the captured graph: bytes, and operations by kind (see Ceilings.rate)."""

    @property
    def read_bytes(self) -> int: ...
    @property
    def write_bytes(self) -> int: ...
    @property
    def flops(self) -> Mapping[str, float]: ...


class Bound(StrEnum):
    """Which limit binds: the memory's rates, the arithmetic's, or the time of a launch."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"


@dataclass(frozen=True)
class Floor:
    """The least time a task can take.

    ms: the floor. bound: the limit that binds. terms: ms of every limit by name (read, write, mixed, and the kinds of
    operation). source: of the ceilings, calibrated or data sheet.
    """

    ms: float
    bound: Bound
    terms: Mapping[str, float]
    source: str


def floor(cost: Traffic, ceilings: Ceilings) -> Floor:
    """max(reads / read rate, writes / write rate, total / mixed rate, operations / rate), inputs cold.

    Up to one L2 of writes is free: it may still lie in the cache when the time ends. Kinds of operation run on
    different units side by side, so the slowest kind binds, not the sum. The floor itself has no launch time in it
    (a launch is not physics); a floor shorter than one launch is called latency bound.
    """
    writes = max(0, cost.write_bytes - ceilings.l2_bytes)
    total = cost.read_bytes + writes
    terms = {
        "read": cost.read_bytes / ceilings.read,
        "write": writes / ceilings.write,
        "mixed": total / ceilings.mixed(writes / total) if total else 0.0,
    }
    memory = max(terms.values())
    operations = {k: n / ceilings.rate(k) for k, n in cost.flops.items() if n and k not in UNGAUGED}
    compute = max(operations.values(), default=0.0)
    seconds = max(memory, compute)
    if seconds < ceilings.launch_s:
        bound = Bound.LATENCY
    else:
        bound = Bound.COMPUTE if compute > memory else Bound.MEMORY
    return Floor(seconds * 1e3, bound, {name: s * 1e3 for name, s in (terms | operations).items()}, ceilings.source)


def headroom(baseline_ms: float, limit: Floor) -> float:
    """How many times longer than the floor the best baseline takes; infinite for a task without traffic."""
    return baseline_ms / limit.ms if limit.ms > 0 else float("inf")


def achieved(candidate_ms: float, limit: Floor) -> float:
    """The share of the floor that a time reaches: 1.0 is the floor itself."""
    return limit.ms / candidate_ms


def no_room(eager_ms: float, compile_ms: float | None, limit: Floor) -> bool:
    """Whether the faster of eager and compile-default (None: not available) lies within 5 % of the floor."""
    best = eager_ms if compile_ms is None else min(eager_ms, compile_ms)
    return headroom(best, limit) <= NO_ROOM


def hack_threshold(cost: Traffic, sheet: Ceilings) -> float:
    """The time in ms under which a candidate is taken for a cheat: 0.9 of the data sheet's floor.

    Here fp32 operations get the matrix rate too: a product in fp32 that is computed exactly enough from half-precision
    parts runs several times faster than ordinary cores allow, and is no cheat.
    """
    fastest = max(sheet.rate("fp32"), sheet.rate("tensor"))
    return HACK * floor(cost, replace(sheet, rates={**sheet.rates, "fp32": fastest})).ms
