"""What the timeline lists: one entry for each attempt, answer, tool call and sentence, grown from the run's events.

Texts of the events are foreign: they are kept cut to a size that a long session can afford, and shown through
kforge/ui/text.py only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from textual.content import Content

from kforge.ui.panes.glyphs import MUTED, Glyphs
from kforge.ui.panes.rows import fitted
from kforge.ui.text import one_line, plain

KEPT = 16_000  # characters of one text; the whole of it is in the run's log
COLOURS = {
    "verified": "$text-success", "faster": "$text-success", "built": "$text-warning", "same": "$text-warning",
    "unclear": "$text-warning", "mixed": "$text-warning", "untimed": "$text-warning", "slower": "$text-error",
    "stopped": "$text-warning",
}  # fmt: skip
_GATES = ("static", "build", "correctness", "honesty", "memory", "model", "performance")


def kept(text: str, end: bool = False) -> str:
    """A text cut to what is kept of it, at its end or at its beginning."""
    if len(text) <= KEPT:
        return text
    cut = f"({len(text) - KEPT} characters more are in the run's log)"
    return f"{cut}\n{text[-KEPT:]}" if end else f"{text[:KEPT]}\n{cut}"


def milliseconds(ms: float) -> str:
    """A time in a unit that reads well."""
    return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1e3:.3g} us"


@dataclass(eq=False)
class Entry:
    """One line of the timeline. kind: what filters choose by. failed: marked, and found by the filter for it."""

    kind: str
    words: str = ""
    style: str = ""
    body: str = ""
    failed: bool = False
    expanded: bool = False
    position: int = -1  # among those that the filter shows

    @property
    def candidate(self) -> str:
        """Digest of the candidate that it is about, "" for none."""
        return ""

    @property
    def expandable(self) -> bool:
        """Whether there is more than its line."""
        return bool(self.body)

    def title(self, width: int, signs: Glyphs) -> Content:
        """Its one line."""
        mark = signs.failed if self.failed else signs.dot
        return fitted(
            Content.assemble((mark + " ", "$text-error" if self.failed else MUTED),
                             plain(one_line(self.words, 400), self.style)),
            width, signs.ellipsis,
        )  # fmt: skip

    def details(self, signs: Glyphs) -> Iterator[Content]:
        """What is below its line when it is expanded, not yet wrapped."""
        if self.body:
            yield plain(self.body)


@dataclass(eq=False)
class Attempt(Entry):
    """A candidate from its proposal to its verdict; judged again with a larger plan it stays one entry."""

    kind: str = "attempt"
    digest: str = ""
    number: int = 0  # in this session
    parent: int = 0  # the number of the attempt that it was made from, 0 for none
    data: dict[str, Any] = field(default_factory=dict)  # of `proposed`
    gates: dict[str, tuple[bool | None, str, float]] = field(default_factory=dict)
    cases: int = 0
    wrong_cases: list[str] = field(default_factory=list)
    stage: str = "proposed"  # while it runs: what it is in; "" when it has ended
    status: str = ""
    verdict: str = ""
    plan: str = ""
    ms: float | None = None
    speedup: float | None = None
    vs: str = ""
    best: bool = False
    pruned: str = ""
    notes: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def candidate(self) -> str:
        return self.digest

    @property
    def expandable(self) -> bool:
        return True

    @property
    def seconds(self) -> float:
        """Spent in its gates."""
        return sum(seconds for _, _, seconds in self.gates.values())

    def title(self, width: int, signs: Glyphs) -> Content:
        if self.stage:
            mark, style = signs.running, "$text-accent"
        elif self.status == "verified":
            mark, style = (signs.best if self.best else signs.passed), "$text-success"
        else:
            mark, style = signs.failed, "$text-error"
        parts: list[Content | tuple[str, str]] = [
            (mark + " ", style),
            (f"#{self.number} ", "bold"),
            (self.digest[:8] + " ", MUTED),
            *self._state(),
            (" " + "".join(self._gates(signs)) + " ", MUTED),
        ]
        if self.seconds:
            parts.append((f"{self.seconds:.1f} s ", MUTED))
        parts.append(plain(one_line(self.data.get("idea") or self.data.get("proposer") or "", 200)))
        return fitted(Content.assemble(*parts), width, signs.ellipsis)

    def _state(self) -> Iterator[tuple[str, str]]:
        if self.stage:
            done = f" {self.cases}" if self.stage == "correctness" and self.cases else ""
            yield (f"{self.stage}{done}", "$text-accent")
            return
        yield (self.status.replace("_", " "), "bold " + COLOURS.get(self.status, "$text-error"))
        if self.status == "verified" and self.verdict:
            yield (f" {self.verdict}", COLOURS.get(self.verdict, "$text-error"))
        if self.speedup is not None:
            yield (f" {self.speedup:.2f}x", "bold")
        if self.ms is not None:
            yield (f" {milliseconds(self.ms)}", "")

    def _gates(self, signs: Glyphs) -> Iterator[str]:
        for name in _GATES:
            if name in self.gates:
                passed = self.gates[name][0]
                yield signs.skipped if passed is None else signs.passed if passed else signs.failed

    def details(self, signs: Glyphs) -> Iterator[Content]:
        who = [str(self.data.get("proposer") or "")]
        who += [f"from #{self.parent}"] if self.parent else []
        direction = str(self.data.get("direction") or "")
        bare = direction.partition(":")[2] or direction  # who proposes stands before it
        who += [bare] if bare not in str(self.data.get("idea") or "") else []
        gain = self.data.get("expected_gain")
        who += [f"expected {gain:.2f}x"] if isinstance(gain, (int, float)) else []
        who += [f"plan {self.plan}"] if self.plan else []
        who += [f"against {self.vs}"] if self.vs else []
        yield plain(", ".join(filter(None, who)), MUTED)
        if self.data.get("idea"):
            yield plain(f"idea: {self.data['idea']}")
        for name, (passed, detail, seconds) in self.gates.items():
            mark = signs.skipped if passed is None else signs.passed if passed else signs.failed
            style = MUTED if passed is None else "$text-success" if passed else "$text-error"
            time = f" {seconds:.2f} s" if seconds else ""
            yield Content.assemble((f"{mark} {name}{time}", style), plain(f"  {detail.rstrip()}" if detail else ""))
        for case in self.wrong_cases:
            yield Content.assemble(("wrong: ", "$text-error"), plain(case))
        for number, finding in enumerate(self.findings, 1):
            yield Content.assemble((f"finding {number}: ", "$text-warning"), plain(finding))
        for note in self.notes:
            yield plain(note, MUTED)
        if self.pruned:
            yield Content.assemble(("pruned: ", "$text-warning"), plain(self.pruned))

    def judge(self, data: Mapping[str, Any]) -> None:
        """Take over an `evaluated` event."""
        report = data.get("report") or {}
        self.stage = ""
        self.status, self.verdict = str(data.get("status", "")), str(data.get("verdict") or "")
        self.plan = str(data.get("plan") or "")
        self.ms, self.speedup = _number(data.get("ms")), _number(data.get("speedup"))
        self.vs = str((report.get("speedup") or {}).get("vs") or "")
        self.failed = self.status != "verified"
        for gate in report.get("gates") or ():
            self.gate(gate)
        self.notes = list(_notes(report))
        if not self.wrong_cases:
            self.wrong_cases = [_case(case) for case in report.get("cases") or () if not case.get("passed")][:3]
        failure = str(data.get("failure") or "")
        if failure and not any(passed is False for passed, _, _ in self.gates.values()):
            self.notes.insert(0, kept(failure))

    def gate(self, data: Mapping[str, Any]) -> None:
        """Take over a gate's outcome."""
        seconds = _number(data.get("seconds")) or 0.0
        self.gates[str(data["name"])] = (data.get("passed"), kept(str(data.get("detail") or "")), seconds)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _case(case: Mapping[str, Any]) -> str:
    where = f", output {case['output']}" if case.get("output") else ""
    return kept(f"{case.get('label', '')}{where}" + (f"\n{case['detail']}" if case.get("detail") else ""))


def _notes(report: Mapping[str, Any]) -> Iterator[str]:
    for found in report.get("detectors") or ():
        if found.get("fired"):
            yield f"detector {found['name']} fired: {kept(str(found.get('detail') or ''))}"
    for build in report.get("builds") or ():
        spilled = f", {build['spill_bytes']} B spilled" if build.get("spill_bytes") else ""
        yield f"kernel {build['name']}: {build['registers']} registers, {build['shared']} B shared{spilled}"
    for warning in list(report.get("warnings") or ())[:3]:
        yield f"warning: {kept(str(warning))}"
    if report.get("repro"):
        yield f"the failing input is reproduced by {report['repro']}"


@dataclass(eq=False)
class Answer(Entry):
    """A model's answer, which grows piece by piece."""

    kind: str = "model"
    call: str = ""
    role: str = ""
    model: str = ""
    running: bool = True
    tokens: str = ""

    @property
    def expandable(self) -> bool:
        return bool(self.body)

    def title(self, width: int, signs: Glyphs) -> Content:
        mark = (signs.running, "$text-accent") if self.running else (signs.dot, "$text-secondary")
        tail = self.body[-400:] if self.running else self.body[:400]
        who = " ".join(filter(None, [self.role, one_line(self.model, 24)])) or "model"
        words = one_line(tail)
        if self.running and len(words) > 100:
            words = words[-max(20, width - len(who) - 6) :]
        return fitted(
            Content.assemble((mark[0] + " ", mark[1]), (one_line(who) + " ", "$text-secondary"), plain(words),
                             (f"  {self.tokens}" if self.tokens else "", MUTED)),
            width, signs.ellipsis,
        )  # fmt: skip

    def grow(self, text: str) -> None:
        """A further piece."""
        self.body = self.body + text
        if len(self.body) > 2 * KEPT:
            self.body = kept(self.body, end=True)


@dataclass(eq=False)
class Steering(Entry):
    """What the developer said to the agent; `state`: received, taken, edited or dropped."""

    kind: str = "steer"
    when: str = "now"
    state: str = "received"

    def title(self, width: int, signs: Glyphs) -> Content:
        words = "queued" if self.state == "received" and self.when == "queued" else self.state
        return fitted(
            Content.assemble(("» " if signs.unicode else "> ", "bold $text-warning"), plain(one_line(self.words, 400)),
                             (f"  {words}", MUTED)),
            width, signs.ellipsis,
        )  # fmt: skip


FILTERS = {
    "all": lambda entry: True,
    "attempts": lambda entry: entry.kind == "attempt",
    "failures": lambda entry: entry.failed,
    "model": lambda entry: entry.kind in ("model", "steer"),
    "tools": lambda entry: entry.kind == "tool",
    "steers": lambda entry: entry.kind in ("steer", "constraint"),
}
