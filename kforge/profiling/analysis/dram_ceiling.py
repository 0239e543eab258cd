"""Nothing left to gain: the memory is busy with bytes that must move."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence, KernelEvidence

BUSY = 80.0  # published trigger (KernelPro), per cent of peak
ACHIEVED = 0.9  # of the calibrated floor
WASTED = 1.2  # traffic over the counted bytes: then the bytes are the fault, not the ceiling


def _most(evidence: Evidence) -> KernelEvidence | None:
    return max(evidence.launched, key=evidence.share, default=None)


def analyse(evidence: Evidence) -> Finding | None:
    kernel, stage = _most(evidence), evidence.stage
    if kernel is None or stage is None:
        return None
    busy = kernel.counter("dram_percent")
    moved = (kernel.counter("dram_read_bytes") or 0.0) + (kernel.counter("dram_write_bytes") or 0.0)
    least = evidence.counted.get("read_bytes", 0.0) + evidence.counted.get("write_bytes", 0.0)
    wasteful = bool(moved and least and moved > WASTED * least)
    at_floor = stage.source == "calibrated" and (stage.achieved or 0.0) >= ACHIEVED
    if not at_floor and (busy is None or busy <= BUSY or wasteful):
        return None
    facts = [f"DRAM is busy {busy:.0f} % of the time"] if busy is not None else []
    facts += [f"the candidate reaches {stage.achieved:.0%} of the floor"] if stage.achieved and at_floor else []
    return Finding(
        tool=TOOL.name,
        kernel="" if at_floor else kernel.name,
        severity=Severity.STOP,
        title="DRAM is at its ceiling: stop here",
        evidence=tuple(facts),
        cause="the bytes of inputs and outputs must move, and they move about as fast as this memory can",
        advice=(
            "keep this kernel",
            "gain more only by moving fewer bytes: fuse it with its neighbours, or store in a narrower type",
        ),
        gain=(1.0, 1.1),
        affinity=TOOL.affinity,
        sources=("ncu",) if busy is not None else ("timeline",),
        values={"dram_percent": busy or 0.0, "achieved": stage.achieved or 0.0},
    )


TOOL = Tool(
    "dram_ceiling", Affinity.MEMORY, f"DRAM over {BUSY:g} % busy with needed bytes, or {ACHIEVED:.0%} of the floor",
    ("ncu", "timeline"), whole=analyse,
)  # fmt: skip
