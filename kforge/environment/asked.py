"""How much of a plan a task can have at all: what a report counts as asked for and as dropped."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kforge.environment.expected import Skip
from kforge.environment.inputs import GIVEN, Case
from kforge.environment.preparation import Prepared

MOST_S = 1.0  # of the processor, for trying what no process was asked; after that a case counts as possible


def possible(prepared: Prepared, cases: Iterable[Case]) -> list[Case]:
    """The cases whose shape, layout and values this task's inputs can have: each tried alone, layouts at their shapes.

    What was tried is kept in `prepared.holds`.
    """
    end = time.thread_time() + MOST_S
    known = prepared.holds

    def holds(case: Case) -> bool:
        if case not in known:
            if time.thread_time() > end:
                return True
            try:
                prepared.inputs(case)
                known[case] = True
            except Skip:
                known[case] = False
        return known[case]

    def every(case: Case) -> bool:
        if case.order and prepared.device != "cpu":
            return False
        parts = [Case(case.variant, layout=case.layout, moved=case.moved)] if case.layout != "contiguous" else []
        if (case.distribution, case.special) != ("x1", "none"):
            parts.append(Case(case.variant, distribution=case.distribution, special=case.special))
        if case.shape != GIVEN:
            parts.append(Case(case.variant, shape=case.shape))
            parts.append(Case(case.variant, layout=case.layout, moved=case.moved, shape=case.shape))
        return all(map(holds, parts))

    return [case for case in cases if every(case)]


def count(
    prepared: Prepared, cases: tuple[Case, ...], left: tuple[Case, ...], inapplicable: int, complete: bool
) -> tuple[int, int]:
    """(asked, dropped). cases: of the plan; left: those without time; inapplicable: met while running.
    complete: the plan ran to its end, so that all but `left` is known.
    """
    dropped = possible(prepared, left)
    if complete:
        return len(cases) - inapplicable - (len(left) - len(dropped)), len(dropped)
    return len(possible(prepared, cases)), len(dropped)
