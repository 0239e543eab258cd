"""Few resident warps, and what keeps others out."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence, KernelEvidence

LOW = 0.5  # published trigger (KernelPro)
DRAM = 80.0
_ADVICE = {
    "registers": ("take fewer registers a thread: unroll less, or __launch_bounds__(threads, blocks)",
                  "use smaller blocks: registers are given out to whole blocks"),
    "shared": ("take less shared memory a block: a smaller tile, or fewer stages of a pipeline",
               "keep values that one thread or warp alone reads in registers, and exchange them by shuffles"),
    "blocks": ("use larger blocks: a multiprocessor holds a limited number of them",),
    "warps": ("use a block size that divides the multiprocessor's warps: 128, 256 or 512 threads",),
}  # fmt: skip


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    if kernel.occupancy is None or kernel.occupancy >= LOW or (kernel.counter("dram_percent") or 0.0) >= DRAM:
        return None
    if kernel.sass and kernel.sass.matrix:  # few warps with large tiles are how matrix products are made
        return None
    limit = kernel.occupancy_limit
    facts = [f"at most {kernel.occupancy:.0%} of the warps fit, limited by {limit}"]
    facts += [f"{kernel.registers} registers a thread, {kernel.shared or 0} bytes of shared memory and"
              f" {kernel.threads} threads a block"] if kernel.registers and kernel.threads else []  # fmt: skip
    active = kernel.counter("warps_active_percent")
    facts += [f"{active:.0f} % were there on average"] if active is not None else []
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR if kernel.occupancy < LOW / 2 else Severity.MINOR,
        title=f"occupancy is limited by {limit}",
        evidence=tuple(facts),
        cause="with few warps resident, nothing else can run while these wait for memory",
        advice=_ADVICE.get(limit, _ADVICE["warps"]),
        gain=(1.0, min(2.0, 0.75 / kernel.occupancy) if kernel.occupancy else 2.0),
        affinity=TOOL.affinity,
        sources=("build", "ncu") if active is not None else ("build",),
        values={"occupancy": kernel.occupancy},
    )


TOOL = Tool("occupancy", Affinity.ALL, f"theoretical occupancy under {LOW:.0%}", ("build",), analyse)
