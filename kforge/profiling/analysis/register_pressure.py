"""So many registers a thread that few warps fit, without a spill."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence, KernelEvidence

REGISTERS = 96  # published trigger (KernelPro)
OCCUPANCY = 0.5


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    registers, occupancy = kernel.registers or 0, kernel.occupancy
    if registers <= REGISTERS or kernel.spill_bytes:
        return None
    if kernel.sass and kernel.sass.matrix:  # tiles of a matrix product belong into registers
        return None
    if occupancy is not None and (occupancy >= OCCUPANCY or kernel.occupancy_limit != "registers"):
        return None
    facts = [f"{registers} registers a thread"]
    facts += [f"occupancy {occupancy:.0%}, limited by registers"] if occupancy is not None else []
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MINOR,
        title="many registers a thread",
        evidence=tuple(facts),
        cause="each multiprocessor has 65,536 registers: the more a thread takes, the fewer warps hide each other's"
        " waiting",
        advice=(
            "try __launch_bounds__(threads, blocks) to make the compiler keep to fewer registers",
            "unroll less, or give each thread fewer elements",
        ),
        gain=(1.0, 1.25),
        affinity=TOOL.affinity,
        sources=("build",),
        values={"registers": registers},
    )


TOOL = Tool(
    "register_pressure", Affinity.ALL, f"over {REGISTERS} registers, which limit occupancy", ("build",), analyse
)
