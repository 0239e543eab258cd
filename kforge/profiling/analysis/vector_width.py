"""Global accesses of four bytes a thread where sixteen are possible."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places
from kforge.profiling.evidence import Evidence, KernelEvidence

NARROW = 0.5  # share of narrow accesses
BYTES = 4  # an access of so many bytes or fewer is narrow
DRAM = 80.0  # per cent of peak from which width does not matter any more


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    if kernel.sass is None or (kernel.counter("dram_percent") or 0.0) >= DRAM:
        return None
    widths: dict[int, int] = {}
    for table in (kernel.sass.load_widths, kernel.sass.store_widths):
        for name, count in table.items():
            widths[int(name)] = widths.get(int(name), 0) + count
    total = sum(widths.values())
    share = sum(n for w, n in widths.items() if w <= BYTES) / total if total else 0.0
    strided = any(r.excess > 1.5 for r in kernel.access if r.space == "global")
    if share <= NARROW or strided:
        return None
    throttled = (kernel.stall("lg_throttle") or 0.0) > 0.1
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR if throttled else Severity.MINOR,
        title="memory instructions are narrow",
        evidence=(f"{share:.0%} of the global accesses move {BYTES} bytes a thread or fewer; 16 are possible",)
        + (("warps wait for the load and store unit's queue",) if throttled else ()),
        cause="each instruction moves a quarter of what it could, so four times as many are issued and fewer bytes are"
        " under way at a time",
        advice=(
            "load and store float4 (or uint4 for half types), with a scalar tail or a VEC=1 variant for what is not"
            " aligned",
            "let each thread take several elements, so that their loads stand next to each other",
        ),
        gain=(1.02, 1.3),
        affinity=TOOL.affinity,
        sources=("sass",),
        places=sass_places(kernel, ("global load", "global store")),
        values={"narrow": share},
    )


TOOL = Tool("vector_width", Affinity.MEMORY, f"over {NARROW:.0%} of accesses at most {BYTES} bytes", ("sass",), analyse)
