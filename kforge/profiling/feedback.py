"""The feedback operator: at most three findings, ranked by expected gain and past success, as text and as data.

Raw counters only on request: dumping some fifty of them makes a model's next step worse, findings make it better
(KernelPro: 1.77x with raw counters, 3.35x with none, 4.00x with tools). The ledger of expected against achieved gain
lives in the run index; a tool whose advice keeps failing sinks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kforge.profiling.analysis import Finding, Severity, analyse
from kforge.profiling.evidence import Evidence, as_json

if TYPE_CHECKING:
    from kforge.store.index import Index, LedgerRow

MOST = 3
PRIOR = 3.0  # followed advices that a tool is credited with before its own record counts


class Mode(StrEnum):
    """What is passed on: nothing, every counter, or what the tools make of them."""

    NONE = "none"
    RAW = "raw"
    TOOLS = "tools"


@dataclass(frozen=True)
class Ranked:
    """A finding with what the ledger makes of it: trust in its tool (1: as expected, or unknown), score."""

    finding: Finding
    trust: float
    score: float


@dataclass(frozen=True)
class Feedback:
    """findings: at most three, best first. left_out: how many more there were. counters: in mode raw only."""

    mode: Mode
    findings: tuple[Ranked, ...] = ()
    left_out: int = 0
    counters: tuple[tuple[str, str, float], ...] = ()

    def for_model(self) -> str:
        """Short text for a chat model; empty in mode none."""
        if self.mode is Mode.RAW:
            return "\n".join(f"{kernel} {name} = {value:.6g}" for kernel, name, value in self.counters)
        lines = []
        for number, ranked in enumerate(self.findings, 1):
            f = ranked.finding
            where = f" in {f.kernel}" if f.kernel else ""
            at = f" (at {', '.join(f'{file}:{line}' for file, line in f.places)})" if f.places else ""
            lines.append(
                f"{number}. {f.severity.value}: {f.title}{where}{at}. {'; '.join(f.evidence)}. Cause: {f.cause}."
            )
            lines += [f"   - {advice}" for advice in f.advice]
            lines.append(f"   expected: {gain_text(f)}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """As data, for --json and the UI."""
        rows = [as_json(r.finding) | {"trust": round(r.trust, 3), "score": _finite(r.score)} for r in self.findings]
        data: dict[str, Any] = {"mode": self.mode.value, "findings": rows, "left_out": self.left_out}
        return data | ({"counters": [list(c) for c in self.counters]} if self.mode is Mode.RAW else {})


def gain_text(finding: Finding) -> str:
    """The expected range in words."""
    low, high = finding.gain
    if finding.severity is Severity.STOP:
        return f"at most {high:.2f}x more" if high > 1.005 else "nothing more"
    return f"{low:.2f}x" if high - low < 0.005 else f"{low:.2f}x to {high:.2f}x"


def feedback(
    evidence: Evidence, mode: Mode = Mode.TOOLS, ledger: Iterable[LedgerRow] = (), most: int = MOST
) -> Feedback:
    """What is passed on about one candidate."""
    if mode is Mode.NONE:
        return Feedback(mode)
    if mode is Mode.RAW:
        return Feedback(mode, counters=raw(evidence))
    ranked = rank(analyse(evidence), ledger)
    return Feedback(mode, tuple(ranked[:most]), max(0, len(ranked) - most))


def rank(findings: Sequence[Finding], ledger: Iterable[LedgerRow] = ()) -> list[Ranked]:
    """Best first: what says stop, then by the logarithm of the expected gain times the trust in the tool.

    Of one tool only its best finding is kept: three slots are too few for one fault in three kernels.
    """
    record = {row.source: row for row in ledger}
    best: dict[str, Ranked] = {}
    for finding in findings:
        trust = trust_in(record.get(finding.tool))
        stop = finding.severity is Severity.STOP
        score = math.inf if stop else trust * math.log(max(finding.middle, 1.0))
        if finding.tool not in best or score > best[finding.tool].score:
            best[finding.tool] = Ranked(finding, trust, score)
    return sorted(best.values(), key=lambda r: -r.score)


def trust_in(row: LedgerRow | None) -> float:
    """Achieved over expected gain of a tool's advice so far, drawn towards 1 while few were followed; 0 to 1.5."""
    if row is None or not row.times_timed or row.expected is None or row.achieved is None or row.expected <= 1:
        return 1.0
    ratio = min(1.5, max(0.0, (row.achieved - 1) / (row.expected - 1)))
    return (PRIOR + row.times_timed * ratio) / (PRIOR + row.times_timed)


def record(index: Index, run: str, finding: Finding, *, parent: str, child: str, achieved: float | None) -> None:
    """Enter what a followed finding achieved: the factor over the parent, None for untimed, 0 for not verified."""
    index.add_advice(
        run, source=finding.tool, advice=finding.advice[0], parent=parent, child=child, expected=finding.gain,
        achieved=achieved,
    )  # fmt: skip


def raw(evidence: Evidence) -> tuple[tuple[str, str, float], ...]:
    """(kernel, name, value) of every number that the sources gave."""
    rows: list[tuple[str, str, float]] = []
    for k in evidence.launched:
        plain = {"registers": k.registers, "spill_bytes": k.spill_bytes, "shared_bytes": k.shared,
                 "occupancy": k.occupancy, "us": k.us, "launches": k.launches}  # fmt: skip
        rows += [(k.name, name, float(value)) for name, value in plain.items() if value is not None]
        rows += [(k.name, name, value) for name, value in sorted(k.counters.items())]
        rows += [(k.name, f"sass {name}", float(n)) for name, n in sorted((k.sass.mix if k.sass else {}).items())]
    return tuple(rows)


def _finite(score: float) -> float | None:
    return round(score, 4) if math.isfinite(score) else None
