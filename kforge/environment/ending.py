"""How a gate ends an evaluation: `Ended` with a status and words, and what a candidate's death or error means there.

What a full disk, or a broken compiler, did to it is the machine's: MissingError, and no candidate is blamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.environment.findings import Failure, StateProblem
from kforge.environment.outcomes import outcome
from kforge.errors import ChildFailed, MissingError

if TYPE_CHECKING:
    from kforge.environment.correctness import Correctness
    from kforge.environment.detectors import Watch
    from kforge.environment.processes import Processes
    from kforge.environment.report import Status

FULL_BYTES = 1 << 20  # a disk with less room is full
SHORT_BYTES = 64 << 20  # or with less than this, where a candidate's process says so: what did not fit is gone again
OWN_BYTES = 256 << 20  # a candidate whose folder holds more than its builds has filled the disk itself


class Ended(Exception):
    """A gate failed: the evaluation is over with this status. gate: left out for the gate that is running."""

    def __init__(self, status: Status, detail: str, gate: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.gate = status, detail, gate


@contextmanager
def failures(
    processes: Processes, watch: Watch, raised: Status, judge: Correctness | None = None, where: str = ""
) -> Iterator[None]:
    """A candidate's death or error as Ended. processes: the candidate's. raised: what an exception in its own code
    means here. judge: of the answers, whose result then holds the failure with the case that it was on.
    """
    from kforge.environment.report import Status

    try:
        yield
    except StateProblem as problem:
        raise Ended(Status.WRONG, f"state_dict differs from the reference's: {problem}") from problem
    except ChildFailed as failure:
        from kforge.kernel.emulator.build import require_compiler

        require_room(processes.folder, failure)  # asked here, as the compiler is: a candidate may say anything
        if failure.error.get("kind") == MissingError.kind and processes.device == "cpu":
            require_compiler()
        case, expected, step = (judge.current if judge else None) or (None, None, 0)
        where = f"{case.label}: " if case else where
        status, words = outcome(failure, raised, judge.watch if judge else watch)
        if judge is not None:
            judge.result.failure = Failure(status, where + words, case, expected, step)
        raise Ended(status, where + words) from failure


def require_room(folder: Path, failure: ChildFailed) -> None:
    """MissingError where the disk of a candidate's folder is full, unless the candidate's own files fill it."""
    from kforge.kernel.build.cache import NO_SPACE

    said = NO_SPACE in f"{failure.text}{failure.log}{failure.error}"
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize >= (SHORT_BYTES if said else FULL_BYTES):
        return
    held = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # gone meanwhile
            held += path.lstat().st_blocks * 512
    if held > OWN_BYTES:
        return
    raise MissingError(
        f"no room on the disk of {folder}: the candidate could not be judged", "free some, or work in another folder"
    ) from failure
