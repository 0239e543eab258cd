"""The registry of analysis tools: one module each, which defines TOOL. To add one, write the file and name it here."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import import_module

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence, KernelEvidence, Kind

__all__ = ["MODULES", "Affinity", "Finding", "Severity", "Tool", "analyse", "tools"]

MODULES = (
    "uncoalesced", "vector_width", "register_spill", "register_pressure", "occupancy", "wave_quantisation",
    "warp_stall", "barrier_stall", "bank_conflicts", "tiling", "l2_reuse", "dram_ceiling", "tensor_cores",
    "launch_overhead", "divergence", "atomics", "memory_parallelism", "special_functions", "integer_index",
    "library_bound", "redundant_traffic", "precision_headroom", "energy",
)  # fmt: skip


@lru_cache(maxsize=1)
def tools() -> tuple[Tool, ...]:
    """Every tool, in the order of MODULES."""
    return tuple(import_module(f"{__name__}.{name}").TOOL for name in MODULES)


def matches(tool: Tool, evidence: Evidence) -> bool:
    """Whether a tool speaks about this class of task, by analysis or by counters."""
    stage = evidence.stage
    if tool.affinity is Affinity.ALL or stage is None or Kind.MIXED.value in (stage.kind.value, stage.measured):
        return True
    if stage.kind is Kind.LATENCY and tool.name == "uncoalesced":  # the emulator's inputs are never large enough
        return True
    return tool.affinity.value in (stage.kind.value, stage.measured)


def analyse(evidence: Evidence) -> list[Finding]:
    """What every matching tool finds, in the tools' order. Gains are of the whole candidate, not of one kernel."""
    found: list[Finding] = []
    for tool in tools():
        if not matches(tool, evidence):
            continue
        if tool.whole is not None:
            answers = [(tool.whole(evidence), None)]
        else:
            assert tool.kernel is not None
            answers = [(tool.kernel(evidence, kernel), kernel) for kernel in evidence.launched]  # type: ignore[misc]
        found += [_of_the_whole(f, evidence, k) for f, k in answers if f is not None]
    return found


def _of_the_whole(finding: Finding, evidence: Evidence, kernel: KernelEvidence | None) -> Finding:
    """Amdahl: a kernel's gain counts for its share of the time, and nothing runs faster than the floor."""
    share = 1.0 if kernel is None else evidence.share(kernel)
    stage = evidence.stage
    most = 1 / stage.achieved if stage and stage.achieved and stage.source == "calibrated" else float("inf")
    low, high = (min(max(1.0, most), 1 / (1 - share + share / gain)) for gain in finding.gain)
    return replace(finding, gain=(round(low, 3), round(high, 3)))
