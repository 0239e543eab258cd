"""Where a call's time goes on a GPU: every kernel's device time by CUPTI (no permission needed), and the gaps.

In the candidate's own process, by torch.profiler; nsys is not needed. The wall time is by the judge's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.profiling.evidence import Timeline
from kforge.profiling.sources import Unavailable

if TYPE_CHECKING:
    from kforge.task.call import Call
    from kforge.worker import Child

BATCH_S = 0.2
CALLS = 20


def timeline(child: Child, call: Call) -> tuple[float, Timeline]:
    """(microseconds of a call with cold inputs, the timeline) of a loaded candidate in phase run.

    The profiler comes last: its library stays in the process and slows launches. ChildFailed: the candidate fails.
    child: loaded with its timer.
    """
    armed = child.arm(call, ("plain",))
    cold = sorted(child.time(CALLS, flush=True).ms)[CALLS // 2] * 1e3
    repeats = max(3, min(2000, int(BATCH_S / max(armed.once_s, 1e-5))))
    child.replay(repeats, "plain")
    wall = child.replay(repeats, "plain") / repeats
    kernels = child.kernel_times(call)
    if not kernels:
        raise Unavailable("timeline", "the profiler of torch saw no kernel", "install torch with CUPTI")
    return cold, Timeline(wall * 1e6, tuple((k.name, k.us, k.count) for k in kernels))
