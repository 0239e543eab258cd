"""How a gate ends an evaluation: `Ended` with a status and words, and what a candidate's death or error means there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kforge.environment.findings import Failure, StateProblem
from kforge.environment.outcomes import outcome
from kforge.errors import ChildFailed, MissingError

if TYPE_CHECKING:
    from kforge.environment.correctness import Correctness
    from kforge.environment.detectors import Watch
    from kforge.environment.report import Status


class Ended(Exception):
    """A gate failed: the evaluation is over with this status. gate: left out for the gate that is running."""

    def __init__(self, status: Status, detail: str, gate: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.gate = status, detail, gate


@contextmanager
def failures(
    device: str, watch: Watch, raised: Status, judge: Correctness | None = None, where: str = ""
) -> Iterator[None]:
    """A candidate's death or error as Ended. raised: what an exception in its own code means here. judge: of the
    answers, whose result then holds the failure with the case that it was on.
    """
    from kforge.environment.report import Status

    try:
        yield
    except StateProblem as problem:
        raise Ended(Status.WRONG, f"state_dict differs from the reference's: {problem}") from problem
    except ChildFailed as failure:
        from kforge.kernel.emulator.build import require_compiler

        if failure.error.get("kind") == MissingError.kind and device == "cpu":
            require_compiler()  # asked here: a candidate may say anything
        case, expected, step = (judge.current if judge else None) or (None, None, 0)
        where = f"{case.label}: " if case else where
        status, words = outcome(failure, raised, judge.watch if judge else watch)
        if judge is not None:
            judge.result.failure = Failure(status, where + words, case, expected, step)
        raise Ended(status, where + words) from failure
