"""Where a call's time goes on a GPU: every kernel's device time by CUPTI (no permission needed), and the gaps.

In the candidate's own process, by torch.profiler. Where nsys is here and the device waits, nsys says between which
kernels: its tracing costs less than torch's. The wall time is by the judge's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.profiling.evidence import Timeline
from kforge.profiling.sources import Unavailable

if TYPE_CHECKING:
    from kforge.task.call import Call
    from kforge.worker import Child
    from kforge.worker.replies import DeviceEvent

BATCH_S = 0.2
CALLS = 20
LEAST_GAP_US, MOST_GAPS = 1.0, 5
WAITING = 0.1  # share of the wall time from which gaps are worth a run of nsys
NSYS_S = 30.0


def times(child: Child, call: Call) -> tuple[float, float]:
    """Microseconds of a call with cold inputs, and of one back to back with others. ChildFailed: the candidate fails.

    child: in phase run, loaded with its timer, its profiler not started: that slows launches for good.
    """
    armed = child.arm(call, ("plain",))
    cold = sorted(child.time(CALLS, flush=True).ms)[CALLS // 2] * 1e3
    repeats = max(3, min(2000, int(BATCH_S / max(armed.once_s, 1e-5))))
    child.replay(repeats, "plain")
    return cold, child.replay(repeats, "plain") / repeats * 1e6


def timeline(child: Child, call: Call, wall_us: float) -> Timeline:
    """The timeline of a loaded candidate in phase run, by the profiler of its process. wall_us: by `times`."""
    kernels, events = child.timeline(call)
    if not kernels:  # the first look may come to nothing
        kernels, events = child.timeline(call)
    if not kernels:
        raise Unavailable("timeline", "the profiler of torch saw no kernel", "install torch with CUPTI")
    return Timeline(wall_us, tuple((k.name, k.us, k.count) for k in kernels), gaps(events), "torch.profiler")


def with_nsys(line: Timeline, child: Child, call: Call) -> Timeline:
    """The gaps as nsys sees them, in a process of its own. Unavailable where it says nothing.

    child: in phase build, loaded.
    """
    events, skipped = child.nsys_events(call, NSYS_S)
    if skipped:
        raise Unavailable("nsys", skipped, "the gaps are those of torch.profiler")
    return replace(line, gaps=gaps(events), source=f"{line.source}, gaps by nsys")


def gaps(events: Sequence[DeviceEvent]) -> tuple[tuple[str, str, float], ...]:
    """The longest times in which the device had nothing to do, as (after, before, us). events: in order of start.

    What runs beside something else, on another stream, ends no gap.
    """
    found: list[tuple[str, str, float]] = []
    last, end = "", float("inf")
    for event in events:
        if event.start - end >= LEAST_GAP_US:
            found.append((last, event.name, round(event.start - end, 3)))
        if end == float("inf") or event.start + event.us > end:
            last, end = event.name, event.start + event.us
    return tuple(sorted(found, key=lambda gap: -gap[2])[:MOST_GAPS])
