"""Facts about each source line and the instructions under it, one metric at a time.

The metrics form a registry: a name, what it is, how a value is written. Lines without a value of a metric have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kforge.kernel.emulator.access import Access
from kforge.profiling.evidence import Evidence, KernelEvidence


@dataclass(frozen=True)
class Metric:
    """One figure a line can have; a larger value is hotter. unit: in words. show: a value as text."""

    name: str
    title: str
    unit: str
    show: Callable[[float], str]


@dataclass(frozen=True)
class SassRow:
    """One instruction under a line; samples and executed are 0 where nothing was sampled.

    sectors: of global memory, or passes over shared memory, each time a warp ran it; 0 where it moves none.
    """

    address: int
    text: str
    samples: int = 0
    stall: str = ""
    executed: int = 0
    sectors: float = 0.0


@dataclass(frozen=True)
class LineFacts:
    """values by metric's name; stall: the reason that warps waited for most here, "" unknown."""

    values: Mapping[str, float] = field(default_factory=dict)
    stall: str = ""
    sass: tuple[SassRow, ...] = ()


@dataclass(frozen=True)
class Annotated:
    """One file's lines. metrics: those that some line has, most telling first. candidate: its digest."""

    file: str
    candidate: str
    metrics: tuple[str, ...]
    lines: Mapping[int, LineFacts]

    def value(self, line: int, metric: str) -> float | None:
        """The figure of one line, None where it has none."""
        facts = self.lines.get(line)
        return None if facts is None else facts.values.get(metric)

    def text(self, line: int, metric: str) -> str:
        """The figure as it is shown, "" where there is none."""
        value = self.value(line, metric)
        return "" if value is None else METRICS[metric].show(value)

    def hottest(self, metric: str) -> list[int]:
        """Lines with a value, hottest first: what "next hot line" walks along."""
        found = [(facts.values[metric], line) for line, facts in self.lines.items() if metric in facts.values]
        return [line for _, line in sorted(found, key=lambda row: (-row[0], row[1]))]


def _count(value: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.0f}"


def _ratio(value: float) -> str:
    return f"{value:.3g}x"


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("samples", "samples", "share of all samples", lambda v: f"{v:.1%}"),
        Metric("excess", "sectors over ideal", "times the sectors that the bytes need", _ratio),
        Metric("sectors", "sectors a request", "32-byte sectors for each warp's access", lambda v: f"{v:.3g}"),
        Metric("conflicts", "passes over ideal", "times the shared-memory passes that are needed", _ratio),
        Metric("executed", "executed", "times, by warps", _count),
        Metric("bytes", "bytes moved", "of global and shared memory, by all threads", _count),
        Metric("instructions", "instructions", "in the line's SASS", _count),
        Metric("width", "narrowest access", "bytes a thread", lambda v: f"{v:.0f}B"),
    )
}


def annotate(evidence: Evidence) -> dict[str, Annotated]:
    """Every file that any source says something of, by name."""
    places: dict[tuple[str, int], dict[str, float]] = {}
    stalls: dict[tuple[str, int], dict[str, int]] = {}
    rows: dict[tuple[str, int], list[SassRow]] = {}
    for kernel in evidence.launched:
        _from_sass(kernel, places, rows)
        _from_access(kernel.access, places)
        _from_samples(kernel, places, stalls, rows)
    files: dict[str, dict[int, LineFacts]] = {}
    for (file, line), values in places.items():
        waits = stalls.get((file, line), {})
        stall = max(waits, key=lambda reason: waits[reason]) if waits else ""
        files.setdefault(file, {})[line] = LineFacts(values, stall, tuple(rows.get((file, line), ())))
    return {file: _annotated(file, evidence.candidate, lines) for file, lines in files.items() if file}


def _annotated(file: str, candidate: str, lines: Mapping[int, LineFacts]) -> Annotated:
    present = {name for facts in lines.values() for name in facts.values}
    return Annotated(file, candidate, tuple(n for n in METRICS if n in present), dict(sorted(lines.items())))


def _from_sass(
    kernel: KernelEvidence,
    places: dict[tuple[str, int], dict[str, float]],
    rows: dict[tuple[str, int], list[SassRow]],
) -> None:
    for line in kernel.sass.lines if kernel.sass else ():
        values = places.setdefault((line.file, line.line), {})
        values["instructions"] = values.get("instructions", 0) + sum(line.mix.values())
        if line.width:
            values["width"] = min(line.width, values.get("width", 99))
        if not kernel.sampled:
            rows.setdefault((line.file, line.line), []).extend(SassRow(at, text) for at, text in line.code)


def _from_access(access: Iterable[Access], places: dict[tuple[str, int], dict[str, float]]) -> None:
    sums: dict[tuple[str, int], dict[str, list[int]]] = {}
    for row in access:
        at = sums.setdefault((row.file, row.line), {}).setdefault(row.space, [0, 0, 0, 0])
        for i, n in enumerate((row.units, row.ideal, row.requests, row.nbytes)):
            at[i] += n
    for place, spaces in sums.items():
        values = places.setdefault(place, {})
        for space, (units, ideal, requests, nbytes) in spaces.items():
            values["bytes"] = values.get("bytes", 0) + nbytes
            if ideal:
                values["excess" if space == "global" else "conflicts"] = units / ideal
            if requests and space == "global":
                values["sectors"] = units / requests


def _from_samples(
    kernel: KernelEvidence,
    places: dict[tuple[str, int], dict[str, float]],
    stalls: dict[tuple[str, int], dict[str, int]],
    rows: dict[tuple[str, int], list[SassRow]],
) -> None:
    total = sum(row.samples for row in kernel.sampled)
    for row in kernel.sampled:
        place = row.file, row.line
        if not row.line:
            continue
        values = places.setdefault(place, {})
        if total:
            values["samples"] = values.get("samples", 0) + row.samples / total
        values["executed"] = max(values.get("executed", 0), row.executed)
        waits = stalls.setdefault(place, {})
        for reason, n in row.stalls.items():
            if reason != "selected":
                waits[reason] = waits.get(reason, 0) + n
        stall = max(row.stalls, key=lambda r: row.stalls[r]) if row.stalls else ""
        sectors = round((row.sectors or row.passes) / row.executed, 2) if row.executed else 0.0
        rows.setdefault(place, []).append(SassRow(row.address, row.sass, row.samples, stall, row.executed, sectors))
