"""The correctness gate: runs a plan's cases in a candidate's process and judges each answer by the acceptance rule.

One process serves all cases, in random order, loaded anew for each state; statistics are pooled per output and
distribution. The first wrong answer ends the gate with words that a person or a model can act on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kforge.environment.allowance import Allowance
from kforge.environment.detectors import Watch, explain
from kforge.environment.draws import further_draws, list_untested
from kforge.environment.expected import Expected, Skip
from kforge.environment.findings import Failure, Refusals, Result, StateProblem
from kforge.environment.honesty import kept_from
from kforge.environment.inputs import GIVEN, Case, Plan
from kforge.environment.loading import load_candidate
from kforge.environment.preparation import Prepared
from kforge.environment.probes import (
    draws_anew,
    influences,
    other_values,
    other_weights,
    same_address,
    unwatched,
    without_launches,
)
from kforge.environment.report import CaseResult, Status
from kforge.environment.structure import (
    Problem,
    check_inputs,
    check_structure,
    check_untouched_state,
)
from kforge.environment.values import Values
from kforge.environment.written import largest_gap, same_answers, shows_both, shows_pattern
from kforge.errors import ChildFailed, TaskError
from kforge.worker.poison import PATTERNS, ZEROS

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.worker import CallReply, Child

HISTORY, HISTORY_BYTES = 4, 512 << 20  # earlier answers kept to recognise a cached one: at least, and while they fit


class Correctness:
    """One candidate against one plan. `run(child)` fills and returns a Result; ChildFailed passes through."""

    def __init__(
        self,
        prepared: Prepared,
        candidate: Candidate,
        plan: Plan,
        watch: Watch,
        overrides: Mapping[str, Any] | None = None,
        on_case: Callable[[CaseResult], None] = lambda result: None,
        refusals: Refusals | None = None,
    ) -> None:
        self.prepared, self.candidate, self.plan, self.watch = prepared, candidate, plan, watch
        self.overrides, self.on_case = overrides, on_case
        self.until = math.inf  # on the clock, when cases that are not required are over
        self.result = Result()
        self.refusals = refusals or Refusals()
        self.values = Values(prepared, plan)
        self.current: tuple[Case, Expected, int] | None = None  # what a dying child was working on
        self._loaded: int | None = None
        self._fresh = True  # the next call is the first since the module was loaded
        self._first = False  # the last one was
        self.earlier: list[tuple[Expected, CallReply]] = []
        self._held = 0  # bytes of these
        self._pattern = PATTERNS[0]  # that fresh memory held in the last call, on the CPU
        self.poisoned = False  # whether it did
        self._twice: set[tuple[int, str, str, str]] = set()  # forms that ran under both patterns
        self.skipped: dict[str, list[str]] = {}  # reason -> cases

    def run(self, child: Child) -> Result:
        """All cases of the plan, then the draws that small outputs need; stops at the first failure."""
        with _one_thread(self.prepared.device):
            return self._run(child)

    def look(self, child: Child, case: Case) -> Result:
        """This case alone: a first look, before everything that the plan needs is built."""
        with _one_thread(self.prepared.device):
            self.poisoned = child.in_force()["poison"].startswith("in force")
            self._case(child, case)
            self.result.error = self.values.worst()
            return self.result

    def _run(self, child: Child) -> Result:
        self.poisoned = child.in_force()["poison"].startswith("in force")
        allowance = Allowance(self.prepared.device, self.plan.seconds(self.prepared.device), child, self.until)
        required, extras = self._order()
        for case in required:
            if self._case(child, case):
                break
        if self.result.failure is None:
            unwatched(self, child)
        if self.result.failure is None:
            further_draws(self, child, allowance)
        if self.result.failure is None and self.plan.name != "quick":
            same_address(self, child)
        if self.result.failure is None and (self.plan.name != "quick" or self.result.kept):
            other_weights(self, child)
        random_outputs = self.prepared.facts is not None and self.prepared.facts.random
        if self.result.failure is None and random_outputs:
            draws_anew(self, child)
        if self.result.failure is None and self.plan.name != "quick" and not random_outputs:
            influences(self, child)
        dropped: list[Case] = []
        for case in extras if self.result.failure is None else ():
            if allowance.over():
                dropped.append(case)
            elif self._case(child, case):
                break
        list_untested(self, dropped, allowance)
        self.result.made = tuple(child.made())
        self.result.biased = self.values.biased()
        self.result.error = self.values.worst()
        return self.result

    def _order(self) -> tuple[list[Case], list[Case]]:
        """Required cases shuffled within each state (number and order of calls tell a candidate nothing), extras."""
        rng = random.Random(self.prepared.seed("order", self.candidate.digest, self.plan.name))
        required = [case for case in self.plan.cases if not case.extra]
        rng.shuffle(required)
        required.sort(key=lambda case: case.state_seed)
        return required, [case for case in self.plan.cases if case.extra]

    def _case(self, child: Child, case: Case) -> bool:
        """One case of the plan; True when the gate is over."""
        if case in self.refusals:
            return False
        if case.order and self.prepared.device != "cpu":
            self.result.inapplicable += 1
            return False
        try:
            expected = self.prepared.expected(case)
        except Skip as reason:
            self.result.inapplicable += 1
            if str(reason):
                self.skipped.setdefault(str(reason), []).append(case.label)
            return False
        try:
            failure, worst = self.ask(child, case, expected)
        except ChildFailed as raised:
            if not self.refusals.accept(case, raised):
                raise
            return False
        failure = failure or self._other_pattern(child, case, expected)
        if failure is None and (not self.result.influence or self.result.elsewhere is None):
            found = without_launches(self, child, case, expected)
            self.result.influence = found if self.result.influence is None else self.result.influence or bool(found)
        result = self.case_result(case, failure, worst)
        self.result.cases.append(result)
        self.on_case(result)
        self.result.failure = failure
        return failure is not None

    def ask(
        self, child: Child, case: Case, expected: Expected, place: str = "any", users: bool = False
    ) -> tuple[Failure | None, dict[str, Any]]:
        """Load if the state differs, call, judge; for stateful tasks the second successive call as well.

        users: fresh memory holds zeros and gradients are enabled, as in a program that nobody watches.
        """
        self.load(child, case)
        worst: dict[str, Any] = {}
        step, now = 0, expected
        while True:
            self.current = (case, now, step)
            every = self._fresh or self.prepared.stateful
            state = "all" if every else "buffers"
            self._pattern = ZEROS if users else PATTERNS[self.result.calls % 2]
            reply = child.call(
                now.call, place=place, seed=now.seed, state=state, pattern=self._pattern, order=case.order, grad=users
            )
            self.note(reply)
            failure = self._judge(child, case, now, reply, step, worst)
            self._remember(now, reply)
            if failure is not None or now.then is None:
                return failure, worst
            now, step = now.then, step + 1

    def _remember(self, expected: Expected, reply: CallReply) -> None:
        self.earlier.append((expected, reply))
        self._held += expected.nbytes
        while len(self.earlier) > HISTORY and self._held > HISTORY_BYTES:
            self._held -= self.earlier.pop(0)[0].nbytes

    def _other_pattern(self, child: Child, case: Case, expected: Expected) -> Failure | None:
        """Once a form: the same call over memory of the other pattern: what shows both is unwritten."""
        here = case.shape in (GIVEN, "prime") and not case.extra
        if self.prepared.stateful or not self.poisoned or not here or case.form in self._twice:
            return None
        self._twice.add(case.form)
        self.watch.clear("unwritten_output")
        first, before = self.earlier[-1][1], self._pattern
        self._pattern = next(p for p in PATTERNS if p != before)
        after_load = self._first  # and so is to derive what is derived from weights
        second = child.call(expected.call, seed=expected.seed, pattern=self._pattern, anew=after_load)
        self.note(second, deriving=after_load)
        if after_load:
            self.result.kept = kept_from(first, second)
        if problem := check_structure(expected, second):
            return Failure(Status.WRONG, f"{case.label}, called again: {problem.message}", case, expected)
        words = shows_both(expected, (first, second), (before, self._pattern))
        if not words:
            return self._repeats(case, expected, first, second)
        self.watch.fire("unwritten_output", words)
        return Failure(Status.WRONG, f"{case.label}: {words}", case, expected)

    def _repeats(self, case: Case, expected: Expected, first: CallReply, second: CallReply) -> Failure | None:
        """The same call twice, after the same seed: a difference is reported, and fails where it is ruled out.

        It is ruled out by a `deterministic` constraint, and where the outputs are random: then by manual_seed.
        """
        if same_answers(first, second):
            return None
        gap = largest_gap(first, second)
        self.result.run_to_run = max(self.result.run_to_run, gap)
        facts, constraints = self.prepared.facts, {c.name for c in self.prepared.task.constraints}
        if facts is not None and facts.random:
            words = "two calls after the same torch.manual_seed give different answers"
        elif "deterministic" in constraints:
            words = f"two equal calls differ by up to {gap:.3g}, and the task asks for a deterministic kernel"
        else:
            return None
        return Failure(Status.WRONG, f"{case.label}: {words}", case, expected)

    def load(self, child: Child, case: Case, tensors: Mapping[str, Any] | None = None) -> None:
        """The case's state, or these tensors, unless it is there already."""
        if self._loaded == case.state_seed and tensors is None and not self.prepared.stateful:
            return
        self.current = None
        reply = load_candidate(
            self.prepared, child, self.candidate, self.overrides, state_seed=case.state_seed, tensors=tensors
        )
        self._loaded, self._fresh = None if tensors is not None else case.state_seed, True
        if reply.problem:
            raise StateProblem(reply.problem)

    def restate(self, child: Child, state_seed: int) -> None:
        """Other parameters and buffers into the module that is loaded, as load_state_dict copies them."""
        load_candidate(self.prepared, child, self.candidate, self.overrides, state_seed=state_seed, again=True)
        self._loaded, self._fresh = state_seed, True

    def note(self, reply: CallReply, deriving: bool = False) -> None:
        """Operators, launches and threads of one call. The first call may prepare weights, and one that is told to
        derive them anew; others may not."""
        into = self.result.first_ops if self._fresh or deriving else self.result.ops
        for name, count in reply.ops.items():
            into[name] = into.get(name, 0) + count
        for name, count in reply.launches.items():
            self.result.launches[name] = self.result.launches.get(name, 0) + count
        if not self._fresh:
            self.result.later_calls += 1
            self.result.growing_calls += reply.threads[1] > reply.threads[0]
        self.result.calls += 1
        self.result.late += reply.late
        self.result.unbuilt = max(self.result.unbuilt, reply.unbuilt)
        self.result.reseeded |= reply.reseeded
        self.result.hidden_told &= reply.hidden_told
        self._first, self._fresh = self._fresh, False

    def _judge(
        self, child: Child, case: Case, expected: Expected, reply: CallReply, step: int, worst: dict[str, Any]
    ) -> Failure | None:
        """Structure, inputs, state, then values."""
        self.watch.clear("lazy_tensor", "inputs_mutated", "out_of_bounds")
        before = self.prepared.state(case.state_seed).tensors
        calls = [*(e for e, _ in self.earlier[len(self.earlier) - step :]), expected]  # of this state, the first on
        changing = {name for e in calls for name in e.effects.mutated_state}
        problem = (
            check_structure(expected, reply)
            or check_inputs(expected, reply)
            or check_untouched_state(before, reply, changing)
        )
        if problem is None:
            problem = self.values.judge(case, expected, reply, worst)
            if problem is None:
                return None
            self._refuse_other_draws(case, expected)
        if problem.detector:
            self.watch.fire(problem.detector, problem.message)
        else:
            problem = self._explained(child, case, expected, reply, problem)
        status = Status.HACKED if self.watch.hacked else Status.WRONG
        where = f"{case.label}{', second call' if step else ''}"
        return Failure(status, f"{where}: {problem.message}", case, expected, step)

    def _refuse_other_draws(self, case: Case, expected: Expected) -> None:
        """TaskError where the reference draws otherwise than by one dropout: only its own draw would count as right."""
        facts, task = self.prepared.facts, self.prepared.task
        if facts is not None and facts.random and self.prepared.choices(case, expected) is None:
            words = "random outputs can be judged for one dropout in a reference that changes no state, not for these"
            raise TaskError(f"{task.path.name}: {words}", "judge what is around the draw, or set MODE = 'eval'")

    def _explained(self, child: Child, case: Case, expected: Expected, reply: CallReply, problem: Problem) -> Problem:
        names = ("cached_result", "constant_output", "identity_shortcut", "nan_wildcard", "default_parameters")
        self.watch.clear(*names)
        if (
            self.poisoned
            and self._pattern in PATTERNS
            and (words := shows_pattern(expected, reply, problem.path, self._pattern))
        ):
            self.watch.fire("unwritten_output", words)
            return Problem(f"{problem.message}; {words}", "unwritten_output", problem.path)
        found = explain(
            expected,
            reply,
            problem.path,
            self.earlier,
            self._with_defaults(case, expected),
            lambda: other_values(self, child, case),
        )
        if found is None:
            return problem
        self.watch.fire(*found)
        return Problem(f"{problem.message}; {found[1]}", found[0], problem.path)

    def _with_defaults(self, case: Case, expected: Expected) -> Callable[[], Any] | None:
        """The reference's outputs with the parameters that its constructor gives it."""
        from kforge.task.call import tree_leaves

        if not self.prepared.state(case.state_seed).tensors:
            return None
        prepared = self.prepared

        def outputs() -> Any:
            from kforge.task import clone_call

            module = prepared.constructed()
            return tree_leaves(prepared.task.run(module, clone_call(expected.call), seed=expected.seed))

        return outputs

    def case_result(self, case: Case, failure: Failure | None, worst: dict[str, Any]) -> CaseResult:
        draw = worst.get("draw")
        detail = failure.detail if failure else ""
        if draw is None:
            return CaseResult(case.label, failure is None, detail=detail)
        return CaseResult(
            label=case.label,
            passed=failure is None,
            output=worst["path"],
            candidate_rms=draw.candidate_rms,
            baseline_rms=draw.baseline_rms,
            candidate_max=draw.candidate_max,
            baseline_max=draw.baseline_max,
            detail=detail,
        )


@contextmanager
def _one_thread(device: str) -> Iterator[None]:
    """On the CPU the candidate's process wants the processors too, and threads that wait for one another spin."""
    import torch

    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
