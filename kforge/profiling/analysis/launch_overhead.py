"""A device that waits for the host between launches."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence, plain_name

IDLE = 0.2  # published trigger (KernelPro): share of the wall time


def analyse(evidence: Evidence) -> Finding | None:
    line = evidence.timeline
    if line is None or line.idle <= IDLE or not line.launches:
        return None
    return Finding(
        tool=TOOL.name,
        kernel="",
        severity=Severity.CRITICAL if line.idle > 0.5 else Severity.MAJOR,
        title="the device waits for launches",
        evidence=(
            f"a call takes {line.wall_us:.3g} us, of which its {line.launches} launches work {line.device_us:.3g} us"
            f" ({line.idle:.0%} idle)",
            *(f"the longest gap, {us:.3g} us: {plain_name(a)} to {plain_name(b)}" for a, b, us in line.gaps[:1]),
        ),
        cause="the host needs longer to start the kernels than they run",
        advice=(
            "capture the call in a CUDA graph",
            "fuse the kernels: each launch less saves its own overhead",
            "do the host's work (allocation, checks, views) once instead of in each call",
        ),
        gain=(1 + 0.3 * line.idle, 1 / (1 - min(line.idle, 0.9))),
        affinity=TOOL.affinity,
        sources=("timeline",),
        values={"idle": line.idle, "launches": line.launches},
    )


TOOL = Tool("launch_overhead", Affinity.ALL, f"over {IDLE:.0%} of the wall time idle", ("timeline",), whole=analyse)
