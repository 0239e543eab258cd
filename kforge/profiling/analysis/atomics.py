"""Atomic operations that queue for few addresses."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places
from kforge.profiling.evidence import Evidence, KernelEvidence

A_BLOCK = 32  # atomic executions by threads a block: more could be joined in the block first


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    sass = kernel.sass
    if sass is None or not sass.mix.get("atomic") or not kernel.blocks:
        return None
    traced = sum(r.executions for r in kernel.access if r.space == "global" and r.access == "read+write")
    counted = sum(r.threads or 32 * r.executed for r in kernel.sampled if _atomic(r.sass))
    total = traced or counted or kernel.counter("atomic_threads") or 0.0
    each = total / kernel.blocks
    if each <= A_BLOCK:
        return None
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.CRITICAL if each > 8 * A_BLOCK else Severity.MAJOR,
        title="atomics are made thread by thread",
        evidence=(f"{total:.3g} atomic operations on global memory, {each:.3g} a block",),
        cause="atomics on one address run one after the other in the L2",
        advice=(
            "reduce within the warp (__shfl_xor_sync) and the block first, then make one atomic a block",
            "give each block a private copy in shared memory, and join the copies at the end",
            "write partial results, and sum them in a second pass (also reproducible)",
        ),
        gain=(1.2, 5.0),
        affinity=TOOL.affinity,
        sources=("trace",) if kernel.traced_bytes else ("ncu",),
        places=sass_places(kernel, ("atomic",)),
        values={"a_block": each},
    )


def _atomic(text: str) -> bool:
    return text.lstrip("@!UP0123456789T ").startswith(("ATOM", "RED"))


TOOL = Tool("atomics", Affinity.ALL, f"over {A_BLOCK} atomic executions a block", ("trace", "ncu"), analyse)
