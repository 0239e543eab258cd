"""The further draws that the statistics of small outputs need, and what the report says was not tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.environment.acceptance import FULL_DRAWS, Outcome
from kforge.environment.asked import possible
from kforge.environment.expected import Skip
from kforge.environment.inputs import CORE, GIVEN, Case

if TYPE_CHECKING:
    from kforge.environment.allowance import Allowance
    from kforge.environment.correctness import Correctness
    from kforge.worker import Child

CONFIRM_S = {"cpu": 20.0, "cuda": 10.0}  # of work more, for draws where a small output seems wrong
NAMED = 12  # cases that one line of the report names


def further_draws(judge: Correctness, child: Child, allowance: Allowance) -> None:
    """Small outputs: at least 32 draws; a suspected failure is confirmed or cleared by up to 512."""
    device = judge.prepared.device.split(":")[0]
    representatives = {case.group: case for case in reversed(judge.plan.cases) if _pooled(case)}
    for group, case in representatives.items():
        draw, more_s = 0, 0.0
        while (undecided := judge.values.undecided(group)) is not None and draw < FULL_DRAWS:
            if judge.values.suspect(group):
                more_s = CONFIRM_S[device]
            if allowance.over(more_s):
                _give_up(judge, case, undecided)
                break
            draw += 1
            try:
                expected = judge.prepared.expected(case, draw)
            except Skip:
                break
            failure, worst = judge.ask(child, case, expected)
            if failure is not None:
                judge.result.failure = failure
                judge.result.cases.append(judge.case_result(case, failure, worst))
                return


def list_untested(judge: Correctness, dropped: list[Case], allowance: Allowance) -> None:
    """What the report says was not tested: skipped and refused cases, those without time, RMS errors."""
    lines = judge.result.not_tested
    for reason, labels in judge.skipped.items():
        more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
        lines.append(f"{'; '.join(labels[:NAMED])}{more}: {reason}")
    lines += [*judge.refusals.lines(), *judge.values.jumps.values()]
    judge.result.dropped = tuple(dropped)
    if dropped := possible(judge.prepared, dropped):
        names = "; ".join(case.label for case in dropped[:NAMED])
        more = f" and {len(dropped) - NAMED} more" if len(dropped) > NAMED else ""
        lines.append(f"{allowance.why(judge.plan.name)}: {names}{more}")
    pooled = {case.group for case in judge.plan.cases if _pooled(case)}
    groups = judge.values.small_groups() - pooled
    names = ", ".join(sorted({"with " + g[2] if g[2] != "none" else g[1] for g in groups}))
    if names and judge.result.failure is None:
        lines.append(f"RMS error of small outputs under {names} (each element was judged)")


def _give_up(judge: Correctness, case: Case, undecided: Outcome) -> None:
    """Time is over before the draws suffice: said, and no failure (CONTRACTS 4)."""
    judge.result.not_tested.append(
        f"{case.distribution} on variant {case.variant}: too few draws to judge the RMS error ({undecided.detail})"
    )


def _pooled(case: Case) -> bool:
    """Whether a small output gets the draws that its RMS error needs: required cases on the task's own sizes."""
    return not case.extra and case.shape == GIVEN and case.distribution in CORE
