"""Operands of a product that every thread fetches for itself."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places, size
from kforge.profiling.evidence import Evidence, KernelEvidence

REUSE = 8.0  # times that the threads ask for each byte of the inputs


def analyse(evidence: Evidence, kernel: KernelEvidence) -> Finding | None:
    sass, least = kernel.sass, evidence.counted.get("read_bytes", 0.0)
    if sass is None or not least or not sass.loop or sass.mix.get("shared load") or sass.matrix:
        return None
    sectors = kernel.counter("global_load_sectors")
    asked = kernel.traced_bytes[0] if kernel.traced_bytes else 32 * sectors if sectors else 0.0
    if asked / least < REUSE or not sass.mix.get("fp32", 0) + sass.mix.get("half", 0):
        return None
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.CRITICAL,
        title="no tile is kept in shared memory",
        evidence=(
            f"threads ask for {size(asked)}, {asked / least:.3g} times the inputs' {size(least)}",
            "the kernel does not read shared memory",
        ),
        cause="each input element is needed by many threads, and each of them fetches it from the caches anew",
        advice=(
            "let a block copy a tile of each operand into shared memory, and compute from there",
            "give each thread a patch of results (4 x 4 or 8 x 8), so that an operand in a register serves several",
        ),
        gain=(1.5, 6.0),
        affinity=TOOL.affinity,
        sources=("trace" if kernel.traced_bytes else "ncu", "sass", "graph"),
        places=sass_places(kernel, ("global load",)),
        values={"reuse": asked / least},
    )


TOOL = Tool(
    "tiling", Affinity.ALL, f"inputs asked for over {REUSE:g} times, no shared memory", ("trace", "ncu"), analyse
)
