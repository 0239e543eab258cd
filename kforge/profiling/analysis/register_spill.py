"""Registers that do not suffice: values kept in local memory, which is global memory in disguise."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places, size
from kforge.profiling.evidence import Evidence, KernelEvidence

KINDS = ("local load", "local store")


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    spilled, stack = kernel.spill_bytes or 0, kernel.stack or 0
    local = sum(kernel.sass.mix.get(k, 0) for k in KINDS) if kernel.sass else 0
    heavy = sum(kernel.sass.weighted.get(k, 0) for k in KINDS) if kernel.sass else 0
    if not spilled and not local:
        return None
    in_loop = heavy > local
    facts = [f"{size(spilled)} a thread are spilled"] if spilled else [f"an array of {size(stack)} a thread is indexed"]
    facts += [f"{local} instructions reach local memory{', in a loop' if in_loop else ''}"] if local else []
    facts += [f"{kernel.registers} registers a thread"] if kernel.registers else []
    advice: tuple[str, ...]
    if spilled:
        cause = "more values are alive than there are registers, so the compiler parks some in local memory"
        advice = (
            "unroll less, or keep fewer accumulators a thread (a smaller tile)",
            "raise the limit: fewer threads a block, or __launch_bounds__ with fewer blocks a multiprocessor",
            "recompute cheap values instead of keeping them across the loop",
        )
    else:
        cause = "an array is indexed by a value known only at run time, so it cannot live in registers"
        advice = (
            "unroll the loops over the array fully (#pragma unroll with constant bounds)",
            "put the array into shared memory, or select by comparison instead of by index",
        )
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.CRITICAL if in_loop else Severity.MAJOR,
        title="registers are spilled" if spilled else "a local array lives in memory",
        evidence=tuple(facts),
        cause=cause,
        advice=advice,
        gain=(1.1, 2.5 if in_loop else 1.4),
        affinity=TOOL.affinity,
        sources=("build", "sass") if kernel.sass else ("build",),
        places=sass_places(kernel, KINDS),
        values={"spill_bytes": spilled, "local_instructions": local},
    )


TOOL = Tool(
    "register_spill", Affinity.ALL, "spilled bytes, or loads and stores of local memory", ("build", "sass"), analyse
)
