"""Stage one: what limits the task by analysis, how much room a baseline leaves, and whether counters agree.

The analytic bound wins a disagreement with counters, and says so: counters describe one kernel, not the task.
"""

from __future__ import annotations

from collections.abc import Mapping

from kforge.profiling.ceilings import Ceilings
from kforge.profiling.evidence import Kind, StageOne
from kforge.profiling.roofline import NO_ROOM, Floor, Traffic, floor

ALIKE = 0.7  # the smaller of two terms is at least this share of the larger: mixed
BUSY = 60.0  # per cent of a unit's peak from which ncu's own class counts
DECIDING = ("eager", "compile_default")


def stage_one(
    cost: Traffic,
    ceilings: Ceilings,
    *,
    baselines_us: Mapping[str, float] | None = None,
    candidate_us: float | None = None,
    why_untimed: str = "",
) -> StageOne:
    """Class, floor and headroom of a task. why_untimed: the reason where there are no baselines' times."""
    limit = floor(cost, ceilings)
    memory, compute = terms(limit, cost, ceilings)
    launch = ceilings.launch_s * 1e6
    times = dict(baselines_us or {})
    best = min(times.values(), default=None)
    deciding = [times[name] for name in DECIDING if name in times]
    floor_us = limit.ms * 1e3
    room = best / floor_us if best is not None and floor_us else None
    operations = sum(cost.flops.values())
    total = cost.read_bytes + cost.write_bytes
    return StageOne(
        kind=classify(memory, compute, launch),
        floor_us=floor_us,
        memory_us=memory,
        compute_us=compute,
        launch_us=launch,
        intensity=operations / total if total else 0.0,
        ceilings=ceilings.gpu,
        source=ceilings.source,
        baselines_us=times,
        candidate_us=candidate_us,
        headroom=room,
        headroom_reason="" if room is not None else why_untimed or "nothing is counted",
        no_room=bool(deciding and floor_us and min(deciding) <= NO_ROOM * floor_us),
    )


def terms(limit: Floor, cost: Traffic, ceilings: Ceilings) -> tuple[float, float]:
    """Microseconds of memory and of arithmetic. Special functions count here, while a floor leaves them out."""
    memory = max(limit.terms.get(name, 0.0) for name in ("read", "write", "mixed")) * 1e3
    compute = max((v for k, v in limit.terms.items() if k not in ("read", "write", "mixed")), default=0.0) * 1e3
    special = cost.flops.get("special", 0.0)
    if special and "special" in ceilings.rates:
        compute = max(compute, special / ceilings.rates["special"] * 1e6)
    return memory, compute


def classify(memory_us: float, compute_us: float, launch_us: float) -> Kind:
    """latency where both terms together are shorter than a launch, mixed where they are alike, else the larger."""
    larger, smaller = max(memory_us, compute_us), min(memory_us, compute_us)
    if larger < launch_us:
        return Kind.LATENCY
    if smaller >= ALIKE * larger:
        return Kind.MIXED
    return Kind.MEMORY if memory_us > compute_us else Kind.COMPUTE


def measured_kind(counters: Mapping[str, float]) -> Kind | None:
    """The class by ncu's shares of peak: what is busiest, latency where nothing is. None without these counters."""
    memory, compute = counters.get("memory_percent"), counters.get("sm_percent")
    if memory is None or compute is None:
        return None
    if max(memory, compute) < BUSY:
        return Kind.LATENCY
    if min(memory, compute) >= ALIKE * max(memory, compute):
        return Kind.MIXED
    return Kind.MEMORY if memory > compute else Kind.COMPUTE


def confirmed(stage: StageOne, counters: Mapping[str, float]) -> StageOne:
    """The stage with what ncu says of the kernel that takes most time."""
    from dataclasses import replace

    found = measured_kind(counters)
    if found is None:
        return stage
    notes = stage.notes
    if found is not stage.kind:
        memory, compute = counters["memory_percent"], counters["sm_percent"]
        notes += (
            f"ncu calls the kernel {found.value} bound (memory {memory:.0f} %, arithmetic {compute:.0f} % of peak);"
            f" the task itself is {stage.kind.value} bound by its bytes and operations, and that counts",
        )
    return replace(stage, measured=found.value, notes=notes)
