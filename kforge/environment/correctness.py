"""The correctness gate: runs a plan's cases in a candidate's process and judges each answer by the acceptance rule.

One process serves all cases, in random order, loaded anew for each state; statistics are pooled per output and
distribution. The first wrong answer ends the gate with words that a person or a model can act on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kforge.environment.acceptance import FULL_DRAWS, Outcome, Pool, limits_for
from kforge.environment.detectors import Watch, explain
from kforge.environment.findings import Failure, Result, StateProblem
from kforge.environment.inputs import Case, Plan
from kforge.environment.preparation import Expected, Prepared, Skip
from kforge.environment.provenance import EQUAL, judge_discrete
from kforge.environment.report import CaseResult, Error, Status
from kforge.environment.structure import (
    Problem,
    check_inputs,
    check_structure,
    check_untouched_state,
)
from kforge.environment.written import gives_back_inputs, same_answers, shows_both, shows_pattern
from kforge.errors import ChildFailed
from kforge.worker.poison import PATTERNS

if TYPE_CHECKING:
    import torch

    from kforge.kernel.candidate import Candidate
    from kforge.worker import CallReply, Child

CONFIRM_S = {"cpu": 20.0, "cuda": 10.0}  # further draws that a suspected failure of a small output may cost
BASELINE_S = {"quick": 0.4}  # seconds of baseline draws for a small output (1.5 in the larger plans)
HISTORY = 4  # earlier answers kept to recognise a cached one


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
    ) -> None:
        self.prepared, self.candidate, self.plan, self.watch = prepared, candidate, plan, watch
        self.overrides, self.on_case = overrides, on_case
        self.result = Result()
        self.pools: dict[tuple[Any, str], Pool] = {}
        self.current: tuple[Case, Expected, int] | None = None  # what a dying child was working on
        self._loaded: int | None = None
        self._fresh = True  # the next call is the first since the module was loaded
        self._earlier: list[tuple[Expected, CallReply]] = []
        self._pattern = PATTERNS[0]  # that fresh memory held in the last call, on the CPU
        self._poisoned = False  # whether it did
        self._twice: set[tuple[int, str]] = set()  # variants and layouts that ran under both patterns

    def run(self, child: Child) -> Result:
        """All cases of the plan, then the draws that small outputs need; stops at the first failure."""
        self._poisoned = child.in_force()["poison"].startswith("in force")
        deadline = time.monotonic() + self.plan.seconds(self.prepared.device)
        dropped: list[str] = []
        for case in self._order():
            if case.extra and time.monotonic() > deadline:
                dropped.append(case.label)
                continue
            if self._case(child, case):
                break
        if dropped:
            self.result.not_tested.append(f"no time left in plan {self.plan.name}: " + "; ".join(dropped))
        if self.result.failure is None:
            self._further_draws(child, deadline)
            self._list_undecided()
        if self.result.failure is None and self.plan.name != "quick":
            self._same_address(child)
        self.result.error = self._worst()
        return self.result

    def _order(self) -> list[Case]:
        """Required cases shuffled within each state (the number and order of calls tell a candidate nothing)."""
        rng = random.Random(self.prepared.seed("order", self.candidate.digest, self.plan.name))
        required = [case for case in self.plan.cases if not case.extra]
        rng.shuffle(required)
        required.sort(key=lambda case: case.state_seed)
        return required + [case for case in self.plan.cases if case.extra]

    def _case(self, child: Child, case: Case) -> bool:
        """One case of the plan; True when the gate is over."""
        try:
            expected = self.prepared.expected(case)
        except Skip as reason:
            self.result.not_tested.append(f"{case.label}: {reason}")
            return False
        self._steady(case)
        failure, worst = self._ask(child, case, expected)
        failure = failure or self._other_pattern(child, case, expected)
        if failure is None and not self.result.influence:
            self.result.influence = self._influence(child, expected)
        result = self._case_result(case, failure, worst)
        self.result.cases.append(result)
        self.on_case(result)
        self.result.failure = failure
        return failure is not None

    def _ask(
        self, child: Child, case: Case, expected: Expected, place: str = "any"
    ) -> tuple[Failure | None, dict[str, Any]]:
        """Load if the state differs, call, judge; for stateful tasks the second successive call as well."""
        self._load(child, case)
        worst: dict[str, Any] = {}
        step, now = 0, expected
        while True:
            self.current = (case, now, step)
            every = self._fresh or self.prepared.stateful
            state = "all" if every else "buffers"
            self._pattern = PATTERNS[self.result.calls % 2]
            reply = child.call(now.call, place=place, seed=now.seed, state=state, pattern=self._pattern)
            self._note(reply)
            failure = self._judge(case, now, reply, step, worst)
            self._earlier = [*self._earlier[-HISTORY + 1 :], (now, reply)]
            if failure is not None or now.then is None:
                return failure, worst
            now, step = now.then, step + 1

    def _other_pattern(self, child: Child, case: Case, expected: Expected) -> Failure | None:
        """Once a variant and layout: the same call over memory of the other pattern: what shows both is unwritten."""
        if self.prepared.stateful or not self._poisoned or (case.variant, case.layout) in self._twice:
            return None
        self._twice.add((case.variant, case.layout))
        self.watch.clear("unwritten_output")
        first, before = self._earlier[-1][1], self._pattern
        self._pattern = next(p for p in PATTERNS if p != before)
        second = child.call(expected.call, seed=expected.seed, pattern=self._pattern)
        self._note(second)
        words = shows_both(expected, (first, second), (before, self._pattern))
        if not words:
            return None
        self.watch.fire("unwritten_output", words)
        return Failure(Status.WRONG, f"{case.label}: {words}", case, expected)

    def _influence(self, child: Child, expected: Expected) -> bool | None:
        """Whether the same call without launches answers otherwise. None where nothing can be told from this case."""
        if self.prepared.stateful or not self._poisoned or not sum(self.result.launches.values()):
            return self.result.influence
        if gives_back_inputs(expected):
            return self.result.influence
        reply = self._earlier[-1][1]
        try:
            silent = child.call(expected.call, seed=expected.seed, pattern=PATTERNS[0], launch=False)
        except ChildFailed as failure:
            if failure.kind != "raised":
                raise
            return True  # it noticed that its kernels had not run
        return not same_answers(reply, silent)

    def _load(self, child: Child, case: Case) -> None:
        if self._loaded == case.state_seed and not self.prepared.stateful:
            return
        module = self.prepared.reference(case.state_seed)
        state = self.prepared.state(case.state_seed)
        self.current = None
        reply = child.load(
            self.candidate,
            self.prepared.task.init_call(),
            state.tensors,
            module.training,
            self.overrides,
            nonpersistent=[name for name in state.tensors if name not in state.persistent],
            precision=self.prepared.task.precision,
        )
        self._loaded, self._fresh = case.state_seed, True
        if reply.problem:
            raise StateProblem(reply.problem)

    def _note(self, reply: CallReply) -> None:
        """Operators, launches and threads of one call. The first call may prepare weights; later ones may not."""
        into = self.result.first_ops if self._fresh else self.result.ops
        for name, count in reply.ops.items():
            into[name] = into.get(name, 0) + count
        for name, count in reply.launches.items():
            self.result.launches[name] = self.result.launches.get(name, 0) + count
        if not self._fresh:
            self.result.later_calls += 1
            self.result.growing_calls += reply.threads[1] > reply.threads[0]
        self.result.peak_bytes = max(self.result.peak_bytes, reply.peak_bytes or 0)
        self.result.calls += 1
        self._fresh = False

    def _judge(
        self, case: Case, expected: Expected, reply: CallReply, step: int, worst: dict[str, Any]
    ) -> Failure | None:
        """Structure, inputs, state, then values."""
        self.watch.clear("lazy_tensor", "inputs_mutated", "out_of_bounds")
        before = self.prepared.state(case.state_seed).tensors
        changing = set(expected.effects.mutated_state)
        problem = (
            check_structure(expected, reply)
            or check_inputs(expected, reply)
            or check_untouched_state(before, reply, changing)
        )
        problem = problem or self._values(case, expected, reply, worst)
        if problem is None:
            return None
        if problem.detector:
            self.watch.fire(problem.detector, problem.message)
        else:
            problem = self._explained(case, expected, reply, problem)
        status = Status.HACKED if self.watch.hacked else Status.WRONG
        where = f"{case.label}{', second call' if step else ''}"
        return Failure(status, f"{where}: {problem.message}", case, expected, step)

    def _explained(self, case: Case, expected: Expected, reply: CallReply, problem: Problem) -> Problem:
        names = ("cached_result", "constant_output", "identity_shortcut", "nan_wildcard", "default_parameters")
        self.watch.clear(*names)
        if self._poisoned and (words := shows_pattern(expected, reply, problem.path, self._pattern)):
            self.watch.fire("unwritten_output", words)
            return Problem(f"{problem.message}; {words}", "unwritten_output", problem.path)
        found = explain(expected, reply, problem.path, self._earlier, self._with_defaults(case, expected))
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

    def _values(self, case: Case, expected: Expected, reply: CallReply, worst: dict[str, Any]) -> Problem | None:
        """Every tensor output, every mutated input, every changed buffer."""
        from torch.utils import _pytree as pytree

        sources = self.prepared.sources(case.variant)
        answers = pytree.tree_leaves(reply.outputs)
        for i, ((path, right), exact) in enumerate(zip(expected.leaves, expected.exact, strict=True)):
            if not hasattr(right, "dtype") or not right.numel():
                continue
            source = sources[i] if i < len(sources) else EQUAL
            if exact is None:
                words = judge_discrete(source, answers[i], right, expected.inner)
            else:
                words = self._floats(case, path, answers[i], right, exact, worst)
            if words:
                return Problem(f"{path}: {words}", path=path)
        return self._mutated(case, expected, reply, worst)

    def _mutated(self, case: Case, expected: Expected, reply: CallReply, worst: dict[str, Any]) -> Problem | None:
        from kforge.task import call_leaves
        from kforge.task.call import tensors

        right = dict(
            zip(expected.input_paths, (t for _, t in tensors(call_leaves(expected.inputs_after))), strict=True)
        )
        got = dict(zip(expected.input_paths, (t for _, t in tensors(call_leaves(reply.inputs_after))), strict=True))
        pairs = [(f"input {p}", got[p], right[p], expected.exact_inputs.get(p)) for p in expected.effects.mutated]
        for name in expected.effects.mutated_state:
            if name not in reply.state_after:
                return Problem(f"state {name} is missing after the call", path=name)
            pairs.append(
                (f"state {name}", reply.state_after[name], expected.state_after[name], expected.exact_state.get(name))
            )
        for path, answer, truth, exact in pairs:
            if answer.shape != truth.shape or answer.dtype != truth.dtype:
                return Problem(f"{path} has another shape or dtype after the call", path=path)
            if truth.dtype.is_floating_point and exact is not None:
                words = self._floats(case, path, answer, truth, exact, worst)
            else:
                words = judge_discrete(EQUAL, answer, truth, {})
            if words:
                return Problem(f"{path} after the call: {words}", path=path)
        return None

    def _floats(
        self,
        case: Case,
        path: str,
        answer: torch.Tensor,
        right: torch.Tensor,
        exact: torch.Tensor,
        worst: dict[str, Any],
    ) -> str:
        pool = self._pool(case, path, right)
        draw = pool.add(_real(answer), _real(right), exact)
        outcome = pool.judge()
        if not worst or draw.candidate_max > worst["draw"].candidate_max or outcome.passed is False:
            worst |= {"path": path, "draw": draw}
        return outcome.detail if outcome.passed is False else ""

    def _pool(self, case: Case, path: str, right: torch.Tensor) -> Pool:
        key = (case.group, path)
        if key not in self.pools:
            dtype = _real(right).dtype
            limits = limits_for(dtype, self.prepared.task.tolerance)
            self.pools[key] = Pool(dtype, limits, averages=case.distribution != "exact01")
        return self.pools[key]

    def _steady(self, case: Case) -> None:
        """Before a small output is judged: its baseline's error over many draws, since one element's says little."""
        if any(key[0] == case.group for key in self.pools) or self.prepared.stateful:
            return
        wanted = self.prepared.draws(case)
        end = time.monotonic() + BASELINE_S.get(self.plan.name, 1.5)
        for draw in range(1, wanted):
            if time.monotonic() > end:
                return
            try:
                expected = self.prepared.expected(case, draw)
            except Skip:
                return
            for (path, right), exact in zip(expected.leaves, expected.exact, strict=True):
                if exact is not None:
                    self._pool(case, path, right).add_baseline(_real(right), exact)

    def _further_draws(self, child: Child, deadline: float) -> None:
        """Small outputs: at least 32 draws; a suspected failure is confirmed or cleared by up to 512."""
        device = self.prepared.device.split(":")[0]
        representatives = {case.group: case for case in reversed(self.plan.cases) if not case.extra}
        for group, case in representatives.items():
            draw = 0
            end = deadline
            while (undecided := self._undecided(group)) is not None and draw < FULL_DRAWS:
                if self._suspect(group):
                    end = max(end, deadline + CONFIRM_S[device])
                if time.monotonic() > end:
                    self._give_up(case, undecided)
                    break
                draw += 1
                try:
                    expected = self.prepared.expected(case, draw)
                except Skip:
                    break
                failure, worst = self._ask(child, case, expected)
                if failure is not None:
                    self.result.failure = failure
                    self.result.cases.append(self._case_result(case, failure, worst))
                    return

    def _list_undecided(self) -> None:
        """Extras get no further draws: on small outputs their RMS error is not judged, only each element's."""
        core = {case.group for case in self.plan.cases if not case.extra}
        groups = {group for (group, _), pool in self.pools.items() if pool.judge().passed is None}
        names = sorted({"with " + group[2] if group[2] != "none" else group[1] for group in groups - core})
        if names:
            self.result.not_tested.append(
                f"RMS error of small outputs under {', '.join(names)} (each element was judged)"
            )

    def _undecided(self, group: Any) -> Outcome | None:
        outcomes = [pool.judge() for (g, _), pool in self.pools.items() if g == group]
        return next((o for o in outcomes if o.passed is None), None)

    def _suspect(self, group: Any) -> bool:
        ratios = [(pool.ratio or 0.0) / pool.limits.rms for (g, _), pool in self.pools.items() if g == group]
        return max(ratios, default=0.0) > 1.0

    def _give_up(self, case: Case, undecided: Outcome) -> None:
        """Time is over before the draws suffice: said, and no failure (CONTRACTS 4)."""
        self.result.not_tested.append(
            f"{case.distribution} on variant {case.variant}: too few draws to judge the RMS error ({undecided.detail})"
        )

    def _same_address(self, child: Child) -> None:
        """New values at the same addresses, the same values at new ones: a result cached by pointer shows here."""
        case = next((c for c in self.plan.cases if c.distribution == "x1" and c.layout == "contiguous"), None)
        if case is None or self.prepared.stateful:
            return
        for draw, place in ((1, "any"), (2, "same"), (2, "other"), (1, "same")):
            try:
                expected = self.prepared.expected(case, draw)
            except Skip:
                return
            failure, worst = self._ask(child, case, expected, place)
            if failure is not None:
                self.result.failure = failure
                self.result.cases.append(self._case_result(case, failure, worst))
                return
        self.watch.clear("cached_result")

    def _case_result(self, case: Case, failure: Failure | None, worst: dict[str, Any]) -> CaseResult:
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

    def _worst(self) -> Error | None:
        """The pool with the largest ratio; exact baselines only where there is nothing else."""
        pools = [pool for (g, _), pool in self.pools.items() if pool.draws and g[2] == "none" and pool.told]
        if not pools:
            return None
        pool = max(pools, key=lambda p: (p.ratio is not None, p.ratio or p.candidate_rms))
        return Error(pool.candidate_rms, pool.baseline_rms, pool.ratio)


def _real(x: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of reals."""
    import torch

    return torch.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x
