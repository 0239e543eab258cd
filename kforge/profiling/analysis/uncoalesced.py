"""Accesses of a warp that touch more sectors than their bytes need."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, places, worst
from kforge.profiling.evidence import Evidence, KernelEvidence, Kind

EXCESS = 1.2  # published trigger (KernelPro): sectors per request over 1.2 times the ideal
SEVERE = 2.0
SHORT = 1.3  # of a task that is shorter than a launch little can be gained


def analyse(evidence: Evidence, kernel: KernelEvidence) -> Finding | None:
    rows = [row for row in kernel.access if row.space == "global" and row.ideal]
    bad = worst(rows, EXCESS)
    units, ideal = sum(r.units for r in rows), sum(r.ideal for r in rows)
    counted = kernel.counter("global_load_efficiency")
    if rows:
        excess, sources = units / ideal, ("trace",) if kernel.traced_bytes else ("ncu",)
    elif counted:
        excess, sources = 100 / counted, ("ncu",)
    else:
        return None
    if excess < EXCESS:
        return None
    facts = [f"{excess:.2g} times the sectors that the bytes need"]
    facts += [f"{r.file}:{r.line} {r.access}s {r.units / r.requests:.3g} sectors a request, {r.ideal / r.requests:.3g}"
              " would do" for r in bad[:2] if r.requests]  # fmt: skip
    most, severity = min(excess, 8), Severity.CRITICAL if excess >= SEVERE else Severity.MAJOR
    if evidence.stage is not None and evidence.stage.kind is Kind.LATENCY:
        most, severity = min(most, SHORT), Severity.MINOR
        facts.append("inputs so small hide it behind the launch; larger ones do not")
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=severity,
        title="global memory is not coalesced",
        evidence=tuple(facts),
        cause="neighbouring threads of a warp read or write addresses that lie apart, so each 32-byte sector that is"
        " moved is used in part only",
        advice=(
            "let threadIdx.x walk along the fastest dimension of the tensor",
            "where the access is a transposition, stage a tile in shared memory and read it back the other way",
            "turn an array of structures into one array a field, or load whole structures as float4",
        ),
        gain=(1 + 0.3 * (most - 1), most),
        affinity=TOOL.affinity,
        sources=sources,
        places=places(bad),
        values={"excess": excess},
    )


TOOL = Tool("uncoalesced", Affinity.MEMORY, f"sectors over {EXCESS} times the ideal", ("trace", "ncu"), analyse)
