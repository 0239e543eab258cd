"""Exponentials, divisions, square roots and conversions, which run at an eighth of the ordinary rate."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places
from kforge.profiling.evidence import Evidence, KernelEvidence

BUSY = 60.0  # per cent of the special unit's time
SLOWER = 8  # issue slots that one of them takes
SHARE = 0.5  # of all issue slots, where there are no counters


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    if kernel.sass is None or (kernel.counter("dram_percent") or 0.0) >= 80:
        return None
    busy = kernel.counter("special_percent")
    special = SLOWER * kernel.sass.weighted.get("special", 0)
    share = special / sum(kernel.sass.weighted.values()) if kernel.sass.instructions else 0.0
    if busy is not None:
        if busy <= BUSY:
            return None
    elif share <= SHARE:
        return None
    facts = [f"the special-function unit is busy {busy:.0f} % of the time"] if busy is not None else []
    facts += [f"special functions take {min(share, 1):.0%} of the issue slots"]
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR if busy is not None else Severity.MINOR,
        title="special functions set the pace",
        evidence=tuple(facts),
        cause="a multiprocessor computes 16 of them a clock, and 128 ordinary operations",
        advice=(
            "compute each once: hoist what does not change out of the loop, and multiply by a reciprocal",
            "use exp2f with the factor folded into its operand, rsqrtf instead of a division by sqrtf",
            "compute part of the exponentials by a polynomial on the ordinary units",
        ),
        gain=(1.05, 1.6),
        affinity=TOOL.affinity,
        sources=("ncu", "sass") if busy is not None else ("sass",),
        places=sass_places(kernel, ("special",)),
        values={"share": share} | ({"busy": busy} if busy is not None else {}),
    )


TOOL = Tool(
    "special_functions", Affinity.COMPUTE, f"unit over {BUSY:g} % busy, or {SHARE:.0%} of the issue slots",
    ("sass", "ncu"), analyse,
)  # fmt: skip
