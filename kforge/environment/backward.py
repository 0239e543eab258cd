"""What the judge does otherwise for a forward/backward pair: cases of its own, and what the report says of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.environment.inputs import Case, Plan, make_plan
from kforge.environment.report import Backward

if TYPE_CHECKING:
    from kforge.environment.report import CaseResult
    from kforge.task import Task


def plan_for(name: str, task: Task, sizes: Iterable[int] = ()) -> Plan:
    """The plan of this name; a pair has a required case of each kind of upstream gradient and of what is needed."""
    gradients = task.gradients
    if gradients is None:
        return make_plan(name, task.n_variants, sizes)
    plan = make_plan(name, gradients.own, sizes)
    own = tuple(Case(variant=gradients.own + k) for k in range(len(gradients.kinds)))
    return replace(plan, cases=plan.cases[:1] + own + plan.cases[1:])


def timed_variants(task: Task, plan: Plan) -> list[int]:
    """The variants that a plan times: those of op.py in `full`, the first of them in the plans for searching."""
    numbers = sorted({case.variant for case in plan.cases})
    own = [n for n in numbers if task.gradients is None or n < task.gradients.own]
    return own if plan.name == "full" else own[:1]


def found(task: Task, cases: Iterable[CaseResult]) -> Backward | None:
    """What was differentiated, and which kinds of upstream gradient passed; None where no gradients are judged."""
    gradients = task.gradients
    if gradients is None:
        return None
    passed = {case.label for case in cases if case.passed}
    labels = {kind: Case(variant=gradients.own + k).label for k, kind in enumerate(gradients.kinds)}
    plain = any(label.startswith("variant 0, seed") for label in passed)
    kinds = (("dense upstream",) if plain else ()) + tuple(k for k, label in labels.items() if label in passed)
    return Backward(gradients.names, kinds)
