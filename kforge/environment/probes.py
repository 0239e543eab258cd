"""What the correctness gate asks beside the plan's cases: whether answers follow what they should depend on.

Each probe takes the gate's judge and the candidate's process, asks, and leaves what it finds in the judge's result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.environment.expected import Skip
from kforge.environment.findings import Failure
from kforge.environment.honesty import kept_from
from kforge.environment.influence import changes, follows
from kforge.environment.inputs import Case
from kforge.environment.randomness import draws_that_differ
from kforge.environment.report import CaseResult, Status
from kforge.environment.structure import check_structure
from kforge.environment.written import computed_elsewhere, gives_back_inputs, same_answers
from kforge.errors import ChildFailed
from kforge.worker.poison import PATTERNS

if TYPE_CHECKING:
    from kforge.environment.correctness import Correctness
    from kforge.environment.expected import Expected
    from kforge.worker import CallReply, Child

OTHER_DRAW = 1 << 20  # beyond every draw of a plan


def unwatched(judge: Correctness, child: Child) -> None:
    """One case as a user's program would have it: fresh memory of zeros instead of a pattern, gradients enabled.

    What a candidate does only where it sees neither no_grad nor a pattern shows here.
    """
    case = next((case for case in judge.plan.cases if case.plain and case not in judge.refusals), None)
    if case is None:
        return
    try:
        expected = judge.prepared.expected(case)
    except Skip:
        return
    failure, worst = judge.ask(child, case, expected, users=True)
    if failure is not None:
        told = f"{failure.detail} (with gradients enabled and fresh memory zeroed, as it may be for a user)"
        judge.result.failure = replace(failure, detail=told)
        judge.result.cases.append(judge.case_result(case, judge.result.failure, worst))


def draws_anew(judge: Correctness, child: Child) -> None:
    """Random outputs: another draw after another seed and in a further call, and a generator that has advanced."""
    case = Case()
    expected = judge.prepared.expected(case)
    choices = judge.prepared.choices(case, expected)
    if choices is None:
        return
    most = draws_that_differ(choices)
    if most is None:
        judge.result.not_tested.append("whether each call draws anew: so few elements are often dropped alike")
        return
    judge.load(child, case)
    first = child.call(expected.call, seed=1)
    words = ""
    if all(same_answers(first, child.call(expected.call, seed=seed)) for seed in range(2, 2 + most)):
        words = "the draw is the same after another seed"
    elif all(same_answers(first, child.call(expected.call, seed=None)) for _ in range(most)):
        words = "two calls in a row draw the same"
    elif not first.rng_advanced:
        words = "torch's generator has not advanced"
    if words:
        judge.result.failure = Failure(Status.WRONG, f"{case.label}: {words}", case, expected)
        judge.result.cases.append(CaseResult(f"{case.label}, drawn again", False, detail=words))


def without_launches(judge: Correctness, child: Child, case: Case, expected: Expected) -> bool | None:
    """Whether the same call without launches answers otherwise. None where nothing can be told from this case."""
    from kforge.task import call_leaves
    from kforge.task.call import tensors
    from kforge.task.state import named_state

    if judge.prepared.stateful or not judge.poisoned or not sum(judge.result.launches.values()):
        return judge.result.influence
    if gives_back_inputs(expected):
        return judge.result.influence
    reply = judge.earlier[-1][1]
    try:
        silent = child.call(expected.call, seed=expected.seed, pattern=PATTERNS[0], launch=False)
    except ChildFailed as failure:
        if failure.kind != "raised":
            raise
        return True  # it noticed that its kernels had not run
    if silent.replays:  # a graph launches what it was captured with
        return judge.result.influence
    state = named_state(judge.prepared.reference(case.state_seed)).values()
    given = [t for t in (*(t for _, t in tensors(call_leaves(expected.call))), *state) if not t.dtype.is_complex]
    found = computed_elsewhere(reply, silent, PATTERNS[0], given)
    if found is not None:
        judge.result.elsewhere = max(judge.result.elsewhere or 0.0, found)
    return not same_answers(reply, silent)


def same_address(judge: Correctness, child: Child) -> None:
    """New values at the same addresses, the same values at new ones: a result cached by pointer shows here."""
    case = next((c for c in judge.plan.cases if c.plain), None)
    if case is None or judge.prepared.stateful:
        return
    for draw, place in ((1, "any"), (2, "same"), (2, "other"), (1, "same")):
        try:
            expected = judge.prepared.expected(case, draw)
        except Skip:
            return
        failure, worst = judge.ask(child, case, expected, place)
        if failure is not None:
            judge.result.failure = failure
            judge.result.cases.append(judge.case_result(case, failure, worst))
            return
    judge.watch.clear("cached_result")


def other_weights(judge: Correctness, child: Child) -> None:
    """Other parameters copied into a module that was called before: answers follow them, as after load_state_dict.

    What the next call derives then, and an equal one after it does not, is kept from parameters by other ways than
    `prepared`, whose work both calls do.
    """
    prepared = judge.prepared
    random = prepared.facts is not None and prepared.facts.random
    if prepared.stateful or prepared.task.gradients or random or not prepared.state(0).tensors:
        return
    first, then = Case(), Case(seed=1, state_seed=1)
    try:
        before, after = prepared.expected(first), prepared.expected(then)
    except Skip:
        return
    failure, worst = judge.ask(child, first, before)
    if failure is None:
        judge.restate(child, then.state_seed)
        failure, worst = judge.ask(child, then, after)
        if failure is not None:  # repro.py would load them into a new module
            told = (
                f"{failure.detail} (weights loaded into a module that was called before: what it keeps is of the old)"
            )
            failure = replace(failure, detail=told, expected=None)
    if failure is not None:
        judge.result.failure = failure
        judge.result.cases.append(judge.case_result(failure.case or first, failure, worst))
        return
    deriving = judge.earlier[-1][1]
    again = child.call(after.call, seed=after.seed, anew=True)
    judge.note(again, deriving=True)
    judge.result.derived = kept_from(deriving, again)


def other_values(judge: Correctness, child: Child, case: Case) -> tuple[Expected, CallReply] | None:
    """What is right, and the answer, for a further draw of this case at the addresses of the call before.

    None where there is no such draw, and where the candidate does not answer.
    """
    try:
        expected = judge.prepared.expected(case, OTHER_DRAW)
        return expected, child.call(expected.call, place="same", seed=expected.seed, order=case.order)
    except Skip:
        return None
    except ChildFailed as failure:
        if failure.kind == "protocol":
            raise
        return None


def influences(judge: Correctness, child: Child) -> None:
    """Each input and parameter scaled until it shows in the reference's answer: the candidate's must follow."""
    from torch.utils import _pytree as pytree

    if judge.prepared.stateful:
        return
    case, hidden = Case(shape="prime"), []
    try:
        judge.prepared.expected(case)
    except Skip:
        case = Case()
    if case in judge.refusals:
        case = Case()
    for change in changes(judge.prepared, case):
        if isinstance(change, str):
            hidden.append(change)
            continue
        judge.current = (case, change.after, 0)
        judge.load(child, case, change.state)
        reply = child.call(change.after.call, seed=change.after.seed, state="none")
        judge.note(reply)
        problem = check_structure(change.after, reply)
        words = problem.message if problem else follows(change, pytree.tree_leaves(reply.outputs))
        if words:
            expected = change.after if change.state is None else None  # repro.py writes the usual state
            judge.result.failure = Failure(Status.WRONG, f"{change.name} scaled: {words}", case, expected)
            judge.result.cases.append(CaseResult(f"{case.label}, {change.name} scaled", False, detail=words))
            return
    if hidden:
        judge.result.not_tested.append(f"influence of {', '.join(hidden)}: it does not show in the reference")
