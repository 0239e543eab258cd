"""A grid that does not fill the multiprocessors, or fills them unevenly in its last wave."""

from __future__ import annotations

import math

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence, KernelEvidence, Kind

EFFICIENCY = 0.8
MANY = 5  # from so many waves on a tail is small


def analyse(evidence: Evidence, kernel: KernelEvidence) -> Finding | None:
    if kernel.blocks is None or not evidence.processors:
        return None
    a_wave = evidence.processors * (kernel.blocks_per_sm or 1)
    waves = kernel.blocks / a_wave
    if kernel.blocks < evidence.processors * EFFICIENCY:
        used = kernel.blocks / evidence.processors
        facts = f"{kernel.blocks} blocks for {evidence.processors} multiprocessors: {used:.0%} of them work"
        title, efficiency = "the grid is smaller than the GPU", used
        advice = (
            "split the work finer: several blocks a row or tile, joined by atomics, a second pass or a cluster",
            "use smaller blocks and more of them",
        )
    elif waves < MANY and kernel.blocks_per_sm and waves > 1 and waves / math.ceil(waves) < EFFICIENCY:
        efficiency = waves / math.ceil(waves)
        facts = f"{waves:.2f} waves of {a_wave} blocks: in the last one {waves % 1:.0%} of the places are taken"
        title = "the last wave is nearly empty"
        advice = (
            "make the grid a whole number of waves, and let each block loop over its share (a persistent kernel)",
            "use smaller tiles, so that there are more waves and the tail weighs less",
        )
    else:
        return None
    small = evidence.stage is not None and evidence.stage.kind is Kind.LATENCY
    most = 1.3 if small else 4.0  # of a task that is shorter than a launch little can be gained
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR if efficiency < 0.5 and not small else Severity.MINOR,
        title=title,
        evidence=(facts,),
        cause="blocks are given out whole, so multiprocessors without one idle until the launch ends",
        advice=advice,
        gain=(1 + 0.2 * (min(1 / efficiency, most) - 1), min(1 / efficiency, most)),
        affinity=TOOL.affinity,
        sources=("build",),
        values={"efficiency": efficiency, "waves": waves},
    )


TOOL = Tool(
    "wave_quantisation", Affinity.ALL, f"under {EFFICIENCY:.0%} of the places in fewer than {MANY} waves",
    ("build",), analyse,
)  # fmt: skip
