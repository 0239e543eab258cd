"""What an analysis tool is and what it answers: severity, evidence, cause, ranked advice, expected gain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kforge.kernel.emulator.access import Access
from kforge.profiling.evidence import Evidence, KernelEvidence

Place = tuple[str, int]


class Severity(StrEnum):
    """How much it matters. STOP: nothing is left to gain here, which is an answer too."""

    STOP = "stop"
    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"


class Affinity(StrEnum):
    """The class of tasks that a tool speaks about."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"
    ALL = "all"


@dataclass(frozen=True)
class Finding:
    """One tool's answer. kernel: "" for the whole candidate. evidence: facts with their numbers, in words.

    advice: most promising first. gain: factors over the candidate's present time, low and high. sources: what the
    evidence was read from (ncu, sass, trace, build, timeline, graph, NVML). places: (file, line), worst first.
    """

    tool: str
    kernel: str
    severity: Severity
    title: str
    evidence: tuple[str, ...]
    cause: str
    advice: tuple[str, ...]
    gain: tuple[float, float]
    affinity: Affinity = Affinity.ALL
    sources: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def middle(self) -> float:
        """The middle of the expected range, which findings are ranked by."""
        return (self.gain[0] + self.gain[1]) / 2


ISSUING = 80.0  # per cent of the issue slots
Analyse = Callable[[Evidence, KernelEvidence], Finding | None]
AnalyseAll = Callable[[Evidence], Finding | None]


@dataclass(frozen=True)
class Tool:
    """One analysis tool. trigger: in words, with its thresholds. Exactly one of `kernel` and `whole` is given:

    kernel: looks at one kernel at a time; whole: looks at the candidate. needs: sources of which one must have spoken.
    """

    name: str
    affinity: Affinity
    trigger: str
    needs: tuple[str, ...]
    kernel: Analyse | None = None
    whole: AnalyseAll | None = None


def issues(kernel: KernelEvidence) -> bool:
    """Whether the schedulers issue in nearly every cycle: then no warp's waiting costs anything."""
    return (kernel.counter("issue_percent") or 0.0) >= ISSUING


def worst(rows: Iterable[Access], least: float) -> list[Access]:
    """Lines whose excess is at least so much, by what they waste."""
    found = [row for row in rows if row.excess >= least]
    return sorted(found, key=lambda row: row.ideal - row.units)


def places(rows: Iterable[Access], most: int = 3) -> tuple[Place, ...]:
    """Where they are, each once."""
    return tuple(dict.fromkeys((row.file, row.line) for row in rows))[:most]


def sass_places(kernel: KernelEvidence, kinds: Sequence[str], most: int = 3) -> tuple[Place, ...]:
    """The lines that have most instructions of these classes, loops counted more."""
    if kernel.sass is None:
        return ()
    rows = [(sum(line.mix.get(k, 0) for k in kinds) * line.weight, line) for line in kernel.sass.lines]
    ranked = sorted((row for row in rows if row[0]), key=lambda row: -row[0])
    return tuple((line.file, line.line) for _, line in ranked[:most])


def sampled_places(kernel: KernelEvidence, reason: str, most: int = 3) -> tuple[Place, ...]:
    """The lines where warps waited most for one reason."""
    totals: dict[Place, int] = {}
    for row in kernel.sampled:
        if row.stalls.get(reason) and row.line:
            totals[row.file, row.line] = totals.get((row.file, row.line), 0) + row.stalls[reason]
    return tuple(sorted(totals, key=lambda place: -totals[place])[:most])


def size(count: float) -> str:
    """Bytes in a unit that reads well."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"
