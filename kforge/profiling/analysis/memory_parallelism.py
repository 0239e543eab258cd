"""Too few bytes under way to hide the memory's latency (Little's law)."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, size
from kforge.profiling.evidence import Evidence, KernelEvidence

LATENCY_S = 6e-7  # of a DRAM access under load on the GPUs of the table, about
ENOUGH = 0.5  # of what Little's law asks for
DRAM = 75.0
_WARPS = {"sm_75": 32, "sm_86": 48, "sm_87": 48, "sm_89": 48, "sm_120": 48}


def analyse(evidence: Evidence, kernel: KernelEvidence) -> Finding | None:
    sass, rate = kernel.sass, evidence.rates.get("read")
    if sass is None or not sass.loads_in_flight or not rate or kernel.occupancy is None or not evidence.processors:
        return None
    if (kernel.counter("dram_percent") or 0.0) >= DRAM:
        return None
    warps = kernel.occupancy * _WARPS.get(evidence.arch.rstrip("af"), 64)
    if kernel.blocks is not None and kernel.threads:
        warps = min(warps, kernel.blocks * kernel.threads / 32 / evidence.processors)
    flying, needed = sass.loads_in_flight * warps * 32, rate * LATENCY_S / evidence.processors
    if flying >= ENOUGH * needed:
        return None
    waiting = kernel.stall("long_scoreboard")
    facts = [f"{sass.loads_in_flight} bytes a thread and {size(flying)} a multiprocessor are under way;"
             f" {size(needed)} would keep the memory busy"]  # fmt: skip
    facts += [f"{waiting:.0%} of the waiting is for global memory"] if waiting is not None else []
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR,
        title="too few loads are under way",
        evidence=tuple(facts),
        cause="each thread waits for its load before it issues the next one",
        advice=(
            "unroll the loop by 4 and issue the loads before the first use",
            "load 16 bytes a thread at a time",
            "copy ahead with cp.async or TMA into shared memory",
            "raise occupancy, or launch more blocks",
        ),
        gain=(1.1, min(2.5, ENOUGH * needed / flying + 0.2)),
        affinity=TOOL.affinity,
        sources=("sass", "build"),
        places=(sass.load_line,) if sass.load_line else (),
        values={"flying": flying, "needed": needed},
    )


TOOL = Tool(
    "memory_parallelism", Affinity.MEMORY, f"under {ENOUGH:.0%} of the bytes that Little's law asks for", ("sass",),
    analyse,
)  # fmt: skip
