"""Warps that wait at barriers."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, issues, sampled_places, sass_places
from kforge.profiling.evidence import Evidence, KernelEvidence

STALLED = 0.3  # published trigger (KernelPro)
DENSE = 0.04  # of the instructions in loops, where there are no counters


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    stalled = kernel.stall("barrier")
    dense = kernel.sass.share("barrier") if kernel.sass and kernel.sass.loop else 0.0
    if stalled is None:
        if dense <= DENSE:
            return None
    elif stalled <= STALLED or issues(kernel):
        return None
    fact = f"{stalled:.0%} of the waiting is at barriers" if stalled is not None else (
        f"{dense:.0%} of the instructions, loops weighted, are barriers")  # fmt: skip
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR if stalled is not None else Severity.MINOR,
        title="barriers hold the block up",
        evidence=(fact,),
        cause="all warps of a block wait for its slowest at each barrier, and start again together",
        advice=(
            "reduce by warp shuffles first, so that one barrier joins the warps' results",
            "double-buffer the tile: then one barrier an iteration suffices",
            "use smaller blocks, so that other blocks run meanwhile",
        ),
        gain=(1.05, 1 / (1 - 0.7 * stalled) if stalled is not None else 1.3),
        affinity=TOOL.affinity,
        sources=("ncu",) if stalled is not None else ("sass",),
        places=sampled_places(kernel, "barrier") or sass_places(kernel, ("barrier",)),
        values={"share": stalled if stalled is not None else dense},
    )


TOOL = Tool(
    "barrier_stall", Affinity.ALL, f"over {STALLED:.0%} of the waiting, or {DENSE:.0%} of a loop", ("ncu", "sass"),
    analyse,
)  # fmt: skip
