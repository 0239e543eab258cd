"""The evaluations of one run: each with its place in the tree, its report and the rules it was judged under."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

from kforge.agent.search.tree import Node
from kforge.environment.report import Report, Status
from kforge.kernel.candidate import Candidate
from kforge.task.constraints import Constraint


@dataclass(frozen=True)
class Attempt:
    """A candidate with its place in the tree and its report; constraints: those it was judged under."""

    node: Node
    candidate: Candidate
    report: Report
    constraints: tuple[str, ...] = ()

    @property
    def ms(self) -> float:
        """The candidate's median time, infinite where it was not timed."""
        return self.report.times_ms.get("candidate", math.inf)

    @property
    def verified(self) -> bool:
        """Judged right."""
        return self.report.status is Status.VERIFIED


class Attempts(Sequence[Attempt]):
    """All of them, in the order in which they ended."""

    def __init__(self) -> None:
        self._all: list[Attempt] = []
        self._equal: dict[tuple[str, str, tuple[str, ...]], Attempt] = {}

    @overload
    def __getitem__(self, index: int) -> Attempt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Attempt]: ...

    def __getitem__(self, index: int | slice) -> Attempt | list[Attempt]:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def add(self, attempt: Attempt) -> None:
        """Enter one; from now on it answers an equal question."""
        self._equal[attempt.candidate.digest, attempt.report.plan, attempt.constraints] = attempt
        self._all.append(attempt)

    def equal(self, digest: str, plan: str, rules: tuple[str, ...]) -> Attempt | None:
        """What was judged equally before."""
        return self._equal.get((digest, plan, rules))

    def verified(self, rules: tuple[str, ...]) -> list[Attempt]:
        """What is right under these rules, fastest first; of each candidate its latest report.

        Untimed ones are in the order in which they were proposed, whenever they were judged: a new rule has all of
        them judged again.
        """
        latest = {a.candidate.digest: a for a in self._all if a.constraints == rules}
        return sorted((attempt for attempt in latest.values() if attempt.verified), key=lambda a: (a.ms, a.node.id))

    def judged(self, digest: str, rules: tuple[str, ...]) -> bool:
        """Whether this candidate has a verdict under these rules."""
        return any(a.candidate.digest == digest and a.constraints == rules for a in self._all)


def names_of(rules: Iterable[Constraint]) -> tuple[str, ...]:
    """As CONSTRAINTS writes them, in order: equal for equal rules."""
    return tuple(sorted(map(str, rules)))
