"""Matrix products that do not use the matrix units, or starve them."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places
from kforge.profiling.evidence import Evidence, KernelEvidence

SLOW = 30.0  # per cent of the matrix units' time
ABLE = ("float16", "bfloat16", "tf32", "float8")


def analyse(evidence: Evidence, kernel: KernelEvidence) -> Finding | None:
    able = [p for p in evidence.products if p.startswith(ABLE)]
    if not able or kernel.sass is None:
        return None
    facts: tuple[str, ...]
    advice: tuple[str, ...]
    kinds: tuple[str, ...]
    if not kernel.sass.matrix:
        if not evidence.own_products:  # what is left for this kernel is around them
            return None
        if not (kernel.sass.loop and kernel.sass.mix.get("fp32", 0) + kernel.sass.mix.get("half", 0)):
            return None
        facts = (f"a product of {able[0]}, and no matrix instruction",)
        title, severity, gain = "the matrix units are unused", Severity.CRITICAL, (2.0, 10.0)
        cause = f"products of {able[0]} are computed on the ordinary units, at a fraction of the matrix units' rate"
        advice = (
            "use mma.sync (or wgmma on sm_90a) on tiles in shared memory, accumulating in float32",
            "leave the product to cuBLAS and fuse only what surrounds it",
        )
        kinds = ("fp32", "half")
    else:
        busy = kernel.counter("tensor_percent")
        if busy is None or busy >= SLOW or (kernel.counter("dram_percent") or 0.0) >= 80:
            return None
        facts = (f"the matrix units are busy {busy:.0f} % of the time", f"through {', '.join(kernel.sass.matrix)}")
        title, severity, gain = "the matrix units are fed slowly", Severity.MAJOR, (1.2, min(4.0, 70 / max(busy, 5)))
        cause = "operands arrive later than the units could take them"
        advice = (
            "copy tiles ahead: cp.async or TMA into several stages of shared memory",
            "read fragments with ldmatrix from a swizzled tile",
            "use larger tiles a warp, so that each operand serves more products",
        )
        kinds = ("matrix",)
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=severity,
        title=title,
        evidence=facts,
        cause=cause,
        advice=advice,
        gain=gain,
        affinity=TOOL.affinity,
        sources=("graph", "sass") if not kernel.sass.matrix else ("ncu", "sass"),
        places=sass_places(kernel, kinds),
    )


TOOL = Tool(
    "tensor_cores", Affinity.COMPUTE, f"products that allow it and no matrix instruction, or units under {SLOW:g} %",
    ("sass", "ncu"), analyse,
)  # fmt: skip
