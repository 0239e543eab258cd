"""What the correctness gate finds, as data: the first failure, the cases, operators, launches and threads seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from kforge.environment.inputs import Case
from kforge.environment.preparation import Expected
from kforge.environment.report import CaseResult, Error, Status


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
    error: Error | None = None
    ops: dict[str, int] = field(default_factory=dict)  # operators seen after the first call of a loaded module
    first_ops: dict[str, int] = field(default_factory=dict)  # of the first call, which may prepare weights
    launches: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    influence: bool | None = None  # whether an answer differs without own kernels; None: could not be told
    later_calls: int = 0  # calls that are not the first of a loaded module
    growing_calls: int = 0  # of these, the ones after which there are more threads than before
    peak_bytes: int = 0


class StateProblem(Exception):
    """The candidate's state_dict is not the reference's; the text names the keys."""
