"""Time that is spent in library kernels, which no change of the candidate's own reaches."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence, plain_name

SHARE = 0.7


def analyse(evidence: Evidence) -> Finding | None:
    line = evidence.timeline
    if line is None or not line.device_us:
        return None
    foreign = [(name, us) for name, us, _ in line.kernels if plain_name(name) not in evidence.own]
    share = sum(us for _, us in foreign) / line.device_us
    if share <= SHARE:
        return None
    longest = max(foreign, key=lambda row: row[1])
    return Finding(
        tool=TOOL.name,
        kernel="",
        severity=Severity.STOP,
        title="library kernels take the time: stop here",
        evidence=(f"{share:.0%} of the device time is in library kernels", f"the longest is {longest[0][:60]}"),
        cause="the candidate's own kernels are a small part of the call",
        advice=(
            "keep the library's kernel, and fuse only what surrounds it",
            "try the library's settings first: precision, memory layout, a CUDA graph",
        ),
        gain=(1.0, 1 / share),
        affinity=TOOL.affinity,
        sources=("timeline",),
        values={"share": share},
    )


TOOL = Tool(
    "library_bound", Affinity.ALL, f"over {SHARE:.0%} of the device time in foreign kernels", ("timeline",),
    whole=analyse,
)  # fmt: skip
