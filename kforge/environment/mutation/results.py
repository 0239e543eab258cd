"""What became of the mutants: outcomes, the report of one kernel, and the table over several. Data and text only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What a plan made of one mutant. Only caught and survived count in the score."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    NOT_COMPILED = "not_compiled"
    EQUIVALENT = "equivalent"  # survived, and argued to compute the same


@dataclass(frozen=True)
class Trial:
    """One mutant's end. status: of the report that decided, by plan `by`.

    reached: whether the changed statement runs at all under the plan (survivors only). untested: cases for which the
    plan had no time left. reason: why it is equivalent.
    """

    task: str
    key: str
    operator: str
    file: str
    line: int
    before: str
    after: str
    context: str
    note: str
    outcome: Outcome
    status: str
    by: str
    detail: str = ""
    case: str = ""
    reached: bool | None = None
    untested: str = ""
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class MutationReport:
    """All trials of one candidate under one plan.

    made: mutants per operator before the cap. unlaunched: kernels of the candidate that no case of the plan launches,
    with the number of mutants that only they hold: none of those was tried, and the plan can catch none.
    """

    task: str
    candidate: str
    plan: str
    made: dict[str, int]
    trials: tuple[Trial, ...]
    unlaunched: dict[str, int]
    seconds: float = 0.0

    @property
    def survivors(self) -> tuple[Trial, ...]:
        """Mutants that the plan verified and that nobody argued equivalent."""
        return tuple(t for t in self.trials if t.outcome is Outcome.SURVIVED)

    @property
    def score(self) -> float | None:
        """Caught over caught and survived; None where nothing counts."""
        return score_of(self.trials)


def score_of(trials: Iterable[Trial]) -> float | None:
    """The share caught; mutants that do not compile and equivalent ones do not count."""
    outcomes = [t.outcome for t in trials]
    caught, survived = outcomes.count(Outcome.CAUGHT), outcomes.count(Outcome.SURVIVED)
    return caught / (caught + survived) if caught + survived else None


def rows(trials: Sequence[Trial], field: str) -> list[dict[str, object]]:
    """Counts and score by one field of the trials ("operator" or "task"), the last row for all together."""
    names = [*sorted({getattr(t, field) for t in trials}), "all"]
    found: list[dict[str, object]] = []
    for name in names:
        some = [t for t in trials if name == "all" or getattr(t, field) == name]
        counts = {outcome.value: sum(t.outcome is outcome for t in some) for outcome in Outcome}
        found.append({field: name, **counts, "score": score_of(some)})
    return found


def table(trials: Sequence[Trial], field: str = "operator") -> str:
    """The counts as aligned text."""
    lines = [f"{field:24} caught survived equivalent not compiled  score"]
    for row in rows(trials, field):
        score = row["score"]
        share = f"{score:7.1%}" if isinstance(score, float) else "      -"
        lines.append(
            f"{row[field]!s:24} {row['caught']:6} {row['survived']:8} {row['equivalent']:10} "
            f"{row['not_compiled']:12} {share}"
        )
    return "\n".join(lines)
