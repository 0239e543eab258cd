"""Warps in which few threads do something."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Place, Severity, Tool
from kforge.profiling.evidence import Evidence, KernelEvidence

THREADS = 24.0  # of 32, on average
LINE = 16.0  # of 32, for a line to be named


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    active = kernel.counter("threads_per_instruction")
    if active is None or active >= THREADS:
        return None
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR if active < 16 else Severity.MINOR,
        title="threads of a warp go different ways",
        evidence=(f"{active:.1f} of 32 threads take part in an instruction on average",),
        cause="a warp runs both sides of a branch one after the other when its threads disagree, and waits for its"
        " longest loop",
        advice=(
            "let whole warps decide alike: branch on the warp's or the block's number",
            "replace short branches by selection, and predicate loads",
            "sort or bin the work, so that neighbours have equal amounts",
        ),
        gain=(1.05, min(4.0, 32 / active)),
        affinity=TOOL.affinity,
        sources=("ncu",),
        places=_lines(kernel),
        values={"threads": active},
    )


def _lines(kernel: KernelEvidence) -> tuple[Place, ...]:
    """The lines that lose most executions."""
    warps: dict[Place, int] = {}
    threads: dict[Place, int] = {}
    for row in kernel.sampled:
        if row.line and row.threads:
            warps[row.file, row.line] = warps.get((row.file, row.line), 0) + row.executed
            threads[row.file, row.line] = threads.get((row.file, row.line), 0) + row.threads
    lost = {p: 32 * warps[p] - threads[p] for p in warps if threads[p] < LINE * warps[p]}
    return tuple(sorted(lost, key=lambda p: -lost[p])[:3])


TOOL = Tool("divergence", Affinity.ALL, f"under {THREADS:g} of 32 threads active", ("ncu",), analyse)
