"""Data that is read again after the L2 has dropped it."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, size
from kforge.profiling.evidence import Evidence, KernelEvidence

HIT = 50.0
AGAIN = 1.5  # DRAM reads over the inputs


def analyse(evidence: Evidence, kernel: KernelEvidence) -> Finding | None:
    hit, read = kernel.counter("l2_hit_percent"), kernel.counter("dram_read_bytes")
    least = evidence.counted.get("read_bytes", 0.0)
    if hit is None or read is None or not least or hit >= HIT or read < AGAIN * least or least < evidence.l2_bytes:
        return None
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR,
        title="what is read again has left the L2",
        evidence=(f"{size(read)} come from DRAM, {read / least:.2g} times the inputs; {hit:.0f} % hits in the L2",),
        cause=f"between two uses of a byte more than the L2's {size(evidence.l2_bytes)} pass through it",
        advice=(
            "order the blocks so that neighbours in time share operands (walk the output in panels)",
            "make the second pass over a row right after the first, in the same block",
            "keep the row in shared memory or registers between its passes",
        ),
        gain=(1.1, min(3.0, read / least)),
        affinity=TOOL.affinity,
        sources=("ncu", "graph"),
        values={"hit_percent": hit, "again": read / least},
    )


TOOL = Tool(
    "l2_reuse", Affinity.MEMORY, f"DRAM reads over {AGAIN} times the inputs, L2 hits under {HIT:g} %", ("ncu",), analyse
)
