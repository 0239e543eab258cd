"""Energy: a power cap that slows the clocks, or a candidate that is quick and burns more."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool
from kforge.profiling.evidence import Evidence

MORE = 1.15  # energy over the baseline's: one kernel twice, a few seconds apart, differed by 8 % on an H200


def analyse(evidence: Evidence) -> Finding | None:
    power = evidence.power
    if power is None:
        return None
    capped = [reason for reason in power.throttle if "power" in reason]
    ratio = power.mj / power.baseline_mj if power.mj and power.baseline_mj else 0.0
    if not capped and ratio <= MORE:
        return None
    facts = [f"clocks are held down by the {capped[0]}"] if capped else []
    facts += [f"{power.sm_mhz} of {power.max_sm_mhz} MHz"] if capped and power.sm_mhz and power.max_sm_mhz else []
    facts += [f"{power.mj:.3g} mJ a call, the baseline {power.baseline_mj:.3g} mJ"] if ratio > MORE else []
    return Finding(
        tool=TOOL.name,
        kernel="",
        severity=Severity.MINOR,
        title="power limits the clocks" if capped else "more energy than the baseline",
        evidence=tuple(facts),
        cause="each byte from DRAM and each idle cycle at full power costs energy, and the power limit turns it into"
        " time"
        if capped
        else "work that the baseline does not do: bytes read again, spinning, wider arithmetic",
        advice=(
            "move fewer bytes: DRAM traffic is the largest part of the power",
            "use the matrix units or narrower types for the same work",
            "of two candidates of equal speed, take the one that needs less energy",
        ),
        gain=(1.0, 1.1),
        affinity=TOOL.affinity,
        sources=("NVML",),
        values={"ratio": ratio},
    )


TOOL = Tool(
    "energy", Affinity.ALL, f"a power cap, or over {MORE} times the baseline's energy", ("NVML",), whole=analyse
)
