"""What the correctness gate finds, as data: the first failure, the cases, operators, launches and threads seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from kforge.environment.expected import Expected
from kforge.environment.inputs import GIVEN, Case
from kforge.environment.report import CaseResult, Error, Status
from kforge.errors import ChildFailed


@dataclass(frozen=True)
class Failure:
    """The first wrong answer: status, words, and what is needed to write repro.py (step 1: the second call)."""

    status: Status
    detail: str
    case: Case | None = None
    expected: Expected | None = None
    step: int = 0


@dataclass
class Result:
    """Everything that the gate found."""

    failure: Failure | None = None
    cases: list[CaseResult] = field(default_factory=list)
    not_tested: list[str] = field(default_factory=list)
    dropped: tuple[Case, ...] = ()  # for which no time was left to run
    inapplicable: int = 0  # cases of the plan that this task cannot have
    error: Error | None = None
    ops: dict[str, int] = field(default_factory=dict)  # operators seen after the first call of a loaded module
    first_ops: dict[str, int] = field(default_factory=dict)  # of the first call, which may prepare weights
    launches: dict[str, int] = field(default_factory=dict)
    made: tuple[str, ...] = ()  # names of its kernels, as the process that ran them tells
    calls: int = 0
    influence: bool | None = None  # whether an answer differs without own kernels; None: could not be told
    later_calls: int = 0  # calls that are not the first of a loaded module
    growing_calls: int = 0  # of these, the ones after which there are more threads than before
    late: int = 0  # own kernels that were launched after their calls had returned
    unbuilt: int = 0  # builds that a process has asked for and that the build gate had not made
    reseeded: bool = False  # whether a call has seeded torch's generators
    hidden_told: bool = True  # whether operators beneath a mode that was switched off would have been seen
    elsewhere: float | None = None  # share of an answer that is there without own kernels and is no copy
    biased: str = ""  # in words, a mean error that is not the baseline's
    kept: tuple[str, ...] = ()  # kernels and operators of the first call that an equal second one had no need of
    derived: tuple[str, ...] = ()  # of those, what was made of parameters and is made anew when these change
    run_to_run: float = 0.0  # largest difference between two equal calls, absolute


class Refusals:
    """Derived shapes that a candidate answers with an error of its own instead of a result.

    Nobody promised it these sizes, so an error is an honest answer, and the report names it; a wrong result is not.
    """

    def __init__(self) -> None:
        self.words: dict[tuple[int, str], str] = {}

    def __contains__(self, case: Case) -> bool:
        return (case.variant, case.shape) in self.words

    def accept(self, case: Case, failure: ChildFailed) -> bool:
        """Whether this failure is a refusal, which is then remembered: an exception raised before anything ran."""
        if case.shape == GIVEN or failure.kind != "raised" or failure.error.get("kind", "launch") != "launch":
            return False
        words = failure.error.get("message") or failure.text.strip().splitlines()[-1]
        self.words[case.variant, case.shape] = words[:200]
        return True

    def lines(self) -> list[str]:
        """One line for each reason."""
        by_reason: dict[str, list[str]] = {}
        for (variant, shape), words in self.words.items():
            by_reason.setdefault(words, []).append(f"{shape} (variant {variant})" if variant else shape)
        return [f"refused by the candidate: shapes {', '.join(names)}: {words}" for words, names in by_reason.items()]


class StateProblem(Exception):
    """The candidate's state_dict is not the reference's; the text names the keys."""
