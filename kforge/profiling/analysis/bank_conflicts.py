"""Threads of a warp that want different words of one bank of shared memory."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, places, worst
from kforge.profiling.evidence import Evidence, KernelEvidence

EXCESS = 1.5  # wavefronts over the ideal
SHARE = 0.2  # of the wavefronts, where only totals are known


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    rows = [row for row in kernel.access if row.space == "shared" and row.ideal]
    units, ideal = sum(r.units for r in rows), sum(r.ideal for r in rows)
    conflicts, wavefronts = kernel.counter("shared_conflicts"), kernel.counter("shared_wavefronts")
    if rows:
        excess, sources = units / ideal, ("trace",) if kernel.traced_bytes else ("ncu",)
    elif conflicts and wavefronts and conflicts / wavefronts > SHARE:
        excess, sources = wavefronts / max(1.0, wavefronts - conflicts), ("ncu",)
    else:
        return None
    bad = worst(rows, EXCESS)
    if rows and excess < EXCESS:
        return None
    facts = [f"{excess:.3g} times the passes over shared memory that the bytes need"]
    facts += [f"{r.file}:{r.line} {r.access}s in {r.units / r.requests:.3g} passes" for r in bad[:2] if r.requests]
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.CRITICAL if excess >= 8 else Severity.MAJOR,
        title="bank conflicts in shared memory",
        evidence=tuple(facts),
        cause="words whose addresses differ by a multiple of 128 bytes lie in one bank, which serves one of them at a"
        " time",
        advice=(
            "pad the rows of the tile by one element: tile[32][33]",
            "swizzle the column with the row: tile[row][column ^ row]",
            "let a warp read along a row",
        ),
        gain=(1.05, min(4.0, 1 + (excess - 1) / 4)),
        affinity=TOOL.affinity,
        sources=sources,
        places=places(bad),
        values={"excess": excess},
    )


TOOL = Tool("bank_conflicts", Affinity.ALL, f"wavefronts over {EXCESS} times the ideal", ("trace", "ncu"), analyse)
