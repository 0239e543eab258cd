"""Which candidate is the best one: the same answer for the status line, the timeline and the search tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Judged:
    """What a candidate's latest report says, as far as the choice needs it. order: of those found right, from 0."""

    digest: str
    rules: frozenset[str]
    ms: float
    order: int
    speedup: float | None
    verdict: str


class Leader:
    """The fastest candidate of op.py that is right under the rules in force; the first one where none was timed."""

    def __init__(self) -> None:
        self.best: Judged | None = None
        self._known: dict[str, Judged] = {}
        self._rules: frozenset[str] = frozenset()
        self._task = ""
        self._count = 0

    @property
    def digest(self) -> str:
        """Of the best, "" where there is none."""
        return self.best.digest if self.best is not None else ""

    def apply(self, kind: str, data: Mapping[str, Any]) -> bool:
        """Take one event in. True: another candidate is the best, or it has another time."""
        before = self.best
        if kind == "evaluated":
            self._judged(data)
        elif kind == "constraint":
            self._ruled(str(data["name"]), added=data["action"] == "added")
        elif kind == "task_loaded":
            digest = str(data.get("digest") or "")
            if self._task and digest != self._task:  # what was found for another op.py is no best of this one
                self.clear()
            self._task = digest
        return self.best != before

    def clear(self) -> None:
        """Nothing was judged."""
        self._known.clear()
        self._rules, self.best = frozenset(), None

    def _judged(self, data: Mapping[str, Any]) -> None:
        digest = str(data["candidate"])
        rules = frozenset(str(name) for name in data.get("constraints") or ())
        known = self._known.pop(digest, None)
        fresh = rules == self._rules
        self._rules = rules
        if data.get("status") == "verified":
            ms = data.get("ms")
            order = known.order if known is not None else self._count
            self._count += known is None
            self._known[digest] = found = Judged(
                digest,
                rules,
                float(ms) if isinstance(ms, (int, float)) and ms > 0 else math.inf,
                order,
                data.get("speedup"),
                str(data.get("verdict") or ""),
            )
            if fresh and digest != self.digest:
                self.best = min(self.best or found, found, key=_place)
                return
        elif fresh and digest != self.digest:
            return
        self._choose()

    def _ruled(self, name: str, *, added: bool) -> None:
        base = name.partition("=")[0]  # a limit takes the place of an earlier one
        kept = frozenset(rule for rule in self._rules if rule.partition("=")[0] != base)
        self._rules = kept | {name} if added else kept
        self._choose()

    def _choose(self) -> None:
        right = [judged for judged in self._known.values() if judged.rules == self._rules]
        self.best = min(right, key=_place, default=None)


def _place(judged: Judged) -> tuple[float, int]:
    return judged.ms, judged.order
