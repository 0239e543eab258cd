"""From times to words: FASTER, SAME, SLOWER, UNCLEAR, MIXED (CONTRACTS 5, 6). Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kforge.environment.report import Report, Speedup, VariantResult, Verdict
from kforge.profiling import statistics
from kforge.profiling.statistics import Ratio


def verdict_of(speedup: Speedup | None) -> Verdict:
    """FASTER or SLOWER when the interval lies outside 1 +- the noise floor, SAME inside, else UNCLEAR."""
    if speedup is None:
        return Verdict.UNTIMED
    return Verdict(statistics.verdict(Ratio(speedup.ratio, *speedup.ci95), speedup.noise))


def headline(variants: Sequence[VariantResult]) -> tuple[Verdict, Speedup | None]:
    """One verdict over all variants: the geometric mean, FASTER only if none is SLOWER, else MIXED.

    The interval of the mean is that of independent logarithms; its noise is the largest of the variants'.
    """
    timed = [v for v in variants if v.speedup is not None]
    if not timed:
        return Verdict.UNTIMED, None
    if len(timed) == 1:
        return timed[0].verdict, timed[0].speedup
    speedups = [v.speedup for v in timed if v.speedup is not None]
    logs = [math.log(s.ratio) for s in speedups]
    mean = sum(logs) / len(logs)
    halves = [(math.log(s.ci95[1]) - math.log(s.ci95[0])) / 2 for s in speedups]
    half = math.sqrt(sum(h * h for h in halves)) / len(halves)
    names = {s.vs for s in speedups}
    total = Speedup(
        vs=names.pop() if len(names) == 1 else "best",
        ratio=math.exp(mean),
        ci95=(math.exp(mean - half), math.exp(mean + half)),
        noise=max(s.noise for s in speedups),
    )
    verdicts = {v.verdict for v in timed}
    if Verdict.SLOWER in verdicts and verdicts != {Verdict.SLOWER}:
        return Verdict.MIXED, total
    return verdict_of(total), total


def confirmed(first: Verdict, second: Verdict) -> Verdict:
    """The verdict of two timings in processes of their own: what both say; the second's where the first was unclear."""
    return second if first in (second, Verdict.UNCLEAR) else Verdict.UNCLEAR


OBJECTIVES = ("speed", "energy")


def better(new: Report, old: Report, objective: str = "speed", bound: float = 1.0) -> bool:
    """Whether one verified candidate is to be preferred to another.

    "speed": the shorter time; energy breaks ties (times within their noise). "energy": the lower energy per call among
    candidates whose speed-up is at least `bound`; where one of them has no energy figure, or both miss the bound, the
    shorter time. ValueError for another objective.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; available: {', '.join(OBJECTIVES)}")
    times = [report.times_ms.get("candidate", math.inf) for report in (new, old)]
    energies = [report.costs.energy_mj.get("candidate") if report.costs else None for report in (new, old)]
    noise = max((report.speedup.noise for report in (new, old) if report.speedup), default=0.0)
    faster = times[0] < times[1]
    less = energies[0] < energies[1] if energies[0] is not None and energies[1] is not None else faster
    if objective == "energy":
        within = [report.speedup is not None and report.speedup.ratio >= bound for report in (new, old)]
        return less if all(within) else within[0] or (faster and not within[1])
    tied = all(0 < ms < math.inf for ms in times) and abs(math.log(times[0] / times[1])) <= noise
    return less if tied else faster


def final(verdict: Verdict, degenerate: bool) -> Verdict:
    """A constant output never counts as faster: whatever is skipped there was never needed."""
    return Verdict.UNCLEAR if degenerate and verdict is Verdict.FASTER else verdict
