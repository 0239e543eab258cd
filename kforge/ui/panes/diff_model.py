"""What the diff pane decides on: the hunks of one comparison, their states, and what can be taken back.

The comparison is the core's answer to `hunks` (kforge/agent/comparison.py); nothing is applied or judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from textual.content import Content

from kforge.agent.hunks import Hunk, hunks, split
from kforge.profiling.annotate.lines import METRICS
from kforge.ui.text import lines, source

PENDING, ACCEPTED, REJECTED = "pending", "accepted", "rejected"


@dataclass(frozen=True)
class Choice:
    """A hunk, or a part of one, with what was decided."""

    hunk: Hunk
    state: str = PENDING
    reason: str = ""


@dataclass(frozen=True)
class Note:
    """A finding at a line of one side."""

    line: int
    side: str
    text: str
    severity: str


@dataclass
class File:
    """One file of both versions; texts None where it is not there. old, new: highlighted lines, from 0."""

    name: str
    old_text: str | None
    new_text: str | None
    figures: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    old: list[Content] = field(default_factory=list)
    new: list[Content] = field(default_factory=list)

    def value(self, metric: str, side: str, line: int | None) -> float | None:
        """A line's figure."""
        return None if line is None else self.figures.get(metric, {}).get(side, {}).get(line)

    def notes_at(self, side: str, line: int | None) -> list[Note]:
        """Findings at a line."""
        return [note for note in self.notes if note.side == side and note.line == line]


class DiffModel:
    """One comparison. `choices` are all hunks in order, split ones as their parts."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        self.candidate = str(reply.get("candidate") or "")
        self.against = str(reply.get("against") or "")
        self.related = bool(reply.get("related", True))
        self.metrics = [name for name in reply.get("metrics") or () if name in METRICS]
        self.files = [_file(row) for row in reply.get("files") or ()]
        reference = reply.get("reference") or {}
        name, text = str(reference.get("name") or ""), str(reference.get("text") or "")
        self.reference = File(name, text, None, old=_highlighted(text, name))
        self.pairs = [
            (int(p["first"]), int(p["last"]), [(str(f), int(a), int(b)) for f, a, b in p["kernels"]])
            for p in reply.get("pairs") or ()
        ]
        self.choices = [Choice(hunk) for file in self.files for hunk in self._hunks(file)]
        self._history: list[list[Choice]] = []

    def _hunks(self, file: File) -> list[Hunk]:
        if not self.related:
            return []
        old = {} if file.old_text is None else {file.name: file.old_text}
        new = {} if file.new_text is None else {file.name: file.new_text}
        return hunks(old, new)

    def count(self, state: str) -> int:
        """How many hunks are in a state."""
        return sum(1 for choice in self.choices if choice.state == state)

    @property
    def accepted(self) -> tuple[str, ...]:
        """Ids of what was accepted."""
        return tuple(choice.hunk.id for choice in self.choices if choice.state == ACCEPTED)

    @property
    def rejected(self) -> tuple[dict[str, str], ...]:
        """What was rejected, and why."""
        return tuple({"id": c.hunk.id, "reason": c.reason} for c in self.choices if c.state == REJECTED)

    def decide(self, index: int, state: str, reason: str = "") -> None:
        """Accept or reject one hunk."""
        self._remember()
        self.choices[index] = replace(self.choices[index], state=state, reason=reason)

    def decide_all(self, state: str, reason: str = "") -> None:
        """Accept or reject what is not decided yet; all, where nothing is left."""
        self._remember()
        every = not self.count(PENDING)
        self.choices = [
            replace(c, state=state, reason=reason) if every or c.state == PENDING else c for c in self.choices
        ]

    def split(self, index: int) -> bool:
        """Put a hunk's parts in its place; False where it has none."""
        parts = split(self.choices[index].hunk)
        if not parts:
            return False
        self._remember()
        self.choices[index : index + 1] = [replace(self.choices[index], hunk=part) for part in parts]
        return True

    def undo(self) -> bool:
        """Take the last decision or split back; False where there is none."""
        if not self._history:
            return False
        self.choices = self._history.pop()
        return True

    def next_pending(self, index: int) -> int:
        """The next undecided hunk after one, from the beginning again; the one itself where there is none."""
        order = [*range(index + 1, len(self.choices)), *range(index)]
        return next((i for i in order if self.choices[i].state == PENDING), index)

    def _remember(self) -> None:
        self._history.append(list(self.choices))


def _file(row: Mapping[str, Any]) -> File:
    name = str(row.get("file") or "")
    old, new = row.get("old"), row.get("new")
    figures = {
        metric: {side: {int(line): float(v) for line, v in values.items()} for side, values in sides.items()}
        for metric, sides in (row.get("figures") or {}).items()
    }
    notes = [
        Note(int(n["line"]), str(n.get("side") or "new"), str(n.get("text") or ""), str(n.get("severity") or ""))
        for n in row.get("notes") or ()
    ]
    return File(name, old, new, figures, notes, _highlighted(old or "", name), _highlighted(new or "", name))


def _highlighted(text: str, name: str) -> list[Content]:
    """One Content a line, as many as there are between newlines."""
    return [line.expand_tabs(4) for line in lines(source(text, name))]
