"""A jump in speed is when past hacks are looked at: the most similar ones are named beside the result (CUDA-L1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.agent.memory.lesson import source_of
from kforge.agent.memory.memory import Memory, shingles, similarity

if TYPE_CHECKING:
    from kforge.environment.report import Report
    from kforge.kernel.candidate import Candidate

# CUDA-L1: over three times the baseline, or over twice the best before.
OVER_BASELINE, OVER_BEST = 3.0, 2.0
ALIKE = 0.2  # ours: less in common says nothing


def jumped(report: Report, best_before_ms: float | None) -> bool:
    """Whether a right attempt is so much faster that it deserves a second look."""
    ms = report.times_ms.get("candidate")
    if ms is None or report.status.value != "verified":
        return False
    over_baseline = report.speedup is not None and report.speedup.ratio > OVER_BASELINE
    return over_baseline or (best_before_ms is not None and best_before_ms / ms > OVER_BEST)


def reminder(memory: Memory, candidate: Candidate, report: Report, best_before_ms: float | None = None) -> str:
    """A sentence that names the past hacks most like a candidate whose speed jumped; "" where there is none."""
    if not jumped(report, best_before_ms):
        return ""
    source = source_of(candidate)
    mine = shingles(source)
    alike = [(similarity(mine, shingles(hack.source)), hack) for hack in memory.hacks(source)]
    named = [f"{hack.why or hack.text} ({share:.0%} alike)" for share, hack in alike if share >= ALIKE]
    return "a jump in speed; past hacks most like this candidate: " + "; ".join(named) if named else ""
