"""After a failure on the emulator, which lines of the source explain it.

A candidate that died: the access that ended it. A wrong answer: two accesses that nothing orders, if there are such.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kforge.environment import memory
from kforge.environment.ending import failures
from kforge.environment.report import Status
from kforge.errors import ChildFailed, EmulatorError

if TYPE_CHECKING:
    from kforge.environment.correctness import Correctness
    from kforge.environment.evaluation import Evaluation

ORDERED_BY = re.compile(r"__shared__|__syncthreads|__syncwarp|\bcp\.async|\batomic\w+|<cuda/|cooperative_groups")


def may_be_an_access(failure: ChildFailed) -> bool:
    """Whether an invalid access may be what ended it: a signal, or an emulator whose own memory was overwritten."""
    return failure.kind == "crashed" or failure.error.get("kind") == EmulatorError.kind


def after_crash(evaluation: Evaluation, judge: Correctness) -> None:
    """The launches of the case that a candidate died in, once more under AddressSanitizer: which line it was."""
    failure = judge.result.failure
    if failure is None or failure.case is None:
        return
    labels, found, seed = {case.label for case in judge.result.cases}, memory.Examination(), failure.case.state_seed
    judged = [case for case in evaluation.plan.cases if case.label in labels]
    load = partial(evaluation.load, seed=seed)
    with failures(evaluation.processes, judge.watch, Status.CRASHED, judge):
        memory.after_crash(evaluation.prepared, failure.case, judged, evaluation.processes.instrumented, load, found)
    if not found.wrong or found.kind == "failed":  # what the emulator itself ended it with says as much
        evaluation.notes += found.skipped
        return
    status, case, expected = failure.status, failure.case, failure.expected
    if found.kind in ("out_of_bounds", "misaligned"):
        judge.watch.fire("out_of_bounds", found.wrong)
        status = Status.WRONG
    if found.case is not None and found.case != case:
        case, expected = found.case, evaluation.prepared.expected(found.case)
    words = f"{failure.detail}; {found.wrong}"
    judge.result.failure = replace(failure, status=status, detail=words, case=case, expected=expected)
    evaluation.died = True


def after_wrong(evaluation: Evaluation, judge: Correctness) -> None:
    """The launches of the case that was answered wrongly once more, traced: a race is why, if there is one.

    Asked only where threads work together at all, and where the budget has time for it.
    """
    failure = judge.result.failure
    if failure is None or failure.case is None or failure.expected is None or failure.status is not Status.WRONG:
        return
    if not any(ORDERED_BY.search(text) for text in evaluation.candidate.files.values()):
        return
    if time.monotonic() + memory.starting_s() > evaluation.until:
        return
    call, found = failure.expected.call, memory.Examination()
    if memory.input_bytes(call) > memory.CASE_BYTES:
        return
    load = partial(evaluation.load, seed=failure.case.state_seed)
    with failures(evaluation.processes, judge.watch, Status.CRASHED, judge):
        memory.after_wrong(failure.case, call, evaluation.processes.instrumented, load, found)
    if found.kind not in ("race", "order"):
        return
    judge.watch.fire("race", found.wrong)
    judge.result.failure = replace(failure, detail=f"{failure.detail}; {found.wrong}")
