"""Judges the values of one answer: outputs, mutated inputs, changed buffers; error statistics pooled over cases."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kforge.environment.acceptance import MIN_DRAWS, Outcome, Pool, halves, limits_for
from kforge.environment.expected import Expected, Skip
from kforge.environment.inputs import GIVEN, Case, Plan
from kforge.environment.jumps import astray, find, hopeless
from kforge.environment.preparation import Prepared
from kforge.environment.provenance import EQUAL, judge_discrete
from kforge.environment.randomness import judge as judge_draw
from kforge.environment.report import Error
from kforge.environment.spots import spots
from kforge.environment.structure import Problem

if TYPE_CHECKING:
    import torch

    from kforge.worker import CallReply

BASELINE_S = {"quick": 0.4}  # seconds of the processor for baseline draws for a small output (1.5 in the larger plans)
OWN = ("x1", "x-1")  # the task's own inputs, and as large
Group = tuple[Any, ...]


class Values:
    """Error statistics of one candidate under one plan, one Pool for each group of cases and output."""

    def __init__(self, prepared: Prepared, plan: Plan) -> None:
        self.prepared, self.plan = prepared, plan
        self.pools: dict[tuple[Group, str], Pool] = {}
        self.steep: dict[str, float | None] = {}  # outputs that jump everywhere, and how far; None: others
        self.jumps: dict[str, str] = {}  # what of which output was not judged as closely as the rest, and why
        self._steadied: set[Group] = set()

    def judge(self, case: Case, expected: Expected, reply: CallReply, worst: dict[str, Any]) -> Problem | None:
        """Every tensor output, every mutated input, every changed buffer."""
        from torch.utils import _pytree as pytree

        sources = self.prepared.sources(case.variant)
        answers = pytree.tree_leaves(reply.outputs)
        drawn = self.prepared.choices(case, expected) or [None] * len(answers)
        for i, ((path, right), exact) in enumerate(zip(expected.leaves, expected.exact, strict=True)):
            if not hasattr(right, "dtype") or not right.numel():
                continue
            source = sources[i] if i < len(sources) else EQUAL
            one = drawn[i]
            if one is not None:
                words = judge_draw(one, answers[i])
            elif exact is None:
                words = judge_discrete(source, answers[i], right, expected.inner)
            else:
                words = self._floats(case, path, answers[i], right, exact, worst, (expected, i))
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
            if (answer.shape, answer.dtype, answer.device) != (truth.shape, truth.dtype, truth.device):
                return Problem(f"{path} has another shape, dtype or device after the call", path=path)
            if truth.dtype.is_floating_point:
                exact = truth.double() if exact is None else exact  # what float64 leaves as it was
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
        output: tuple[Expected, int] | None = None,
    ) -> str:
        pool = self._pool(case, path, right)
        earlier = pool.copied() if output is not None and right.dtype in halves() else None
        draw = pool.add(_real(answer), _real(right), exact)
        outcome = pool.judge()
        if earlier is not None and output is not None and (words := self._astray(case, path, output, answer, pool)):
            return words
        wrong = outcome.passed is False or (outcome.passed is None and not pool.small and pool.beyond)
        if wrong and earlier is not None and output is not None and not pool.masks_differ:
            pool, outcome = self._beside_jumps(case, path, output, answer, (earlier, pool))
        if outcome.passed is False and (pool.small or pool.lone) and not pool.masks_differ and self._steady(case):
            outcome = pool.judge()
        if not worst or draw.candidate_max > worst["draw"].candidate_max or outcome.passed is False:
            worst |= {"path": path, "draw": draw}
        if outcome.passed is not False:
            return ""
        where = "" if pool.masks_differ else spots(pool.beyond_bound(_real(answer), _real(right), exact))
        return outcome.detail + (f"; wrong by more than that: {where}" if where else "")

    def _astray(self, case: Case, path: str, output: tuple[Expected, int], answer: torch.Tensor, pool: Pool) -> str:
        """What is wrong with an answer that the baseline's error says nothing of, on the task's own inputs; or ""."""
        if case.shape != GIVEN or case.special != "none" or case.distribution not in OWN or not pool.vain:
            return ""
        (expected, leaf), moves = output, self.steep.get(path)
        if path not in self.steep:
            found = find(self.prepared, case, expected, leaf)
            moves = self.steep[path] = float(found.most.max()) if found is not None and found.everywhere else None
        exact = expected.exact[leaf]
        if moves is None or exact is None:
            return ""
        self.jumps[path] = (
            f"{path}: RMS errors, since the reference's own answer moves by up to {moves:.3g} when inputs move by one "
            "unit in the last place (each element was compared with fp64's and with the reference's)"
        )
        return astray(answer, expected.leaves[leaf][1], exact, moves)

    def _beside_jumps(
        self, case: Case, path: str, output: tuple[Expected, int], answer: torch.Tensor, pools: tuple[Pool, Pool]
    ) -> tuple[Pool, Outcome]:
        """The verdict without the rows in which the reference itself jumps (jumps.py), each of which is held to that.

        pools: without and with this answer. Where nothing jumps, the second stands.
        """
        (earlier, whole), (expected, leaf) = pools, output
        right, exact = expected.leaves[leaf][1], expected.exact[leaf]
        assert exact is not None
        if hopeless(answer, right, exact, whole.limits.rms):
            return whole, whole.judge()
        found = find(self.prepared, case, expected, leaf)
        if found is None:
            return whole, whole.judge()
        if words := found.judge(answer, exact, whole.baseline_max, whole.limits.max):
            return whole, Outcome(False, words)
        earlier.add(answer.where(~found.rows, right), right, exact.where(~found.rows, right.double()))
        self.pools[case.group, path] = earlier
        label, rows = (
            f"{path} under {case.distribution}",
            exact.numel() // max(1, exact.shape[-1] if exact.dim() else 1),
        )
        self.jumps[label] = (
            f"{label}: {found.count} of {rows} rows, in which the reference's own answer moves by up to "
            f"{float(found.most.max()):.3g} when inputs move by one unit in the last place, beyond that"
        )
        return earlier, earlier.judge()

    def _pool(self, case: Case, path: str, right: torch.Tensor) -> Pool:
        key = (case.group, path)
        if key not in self.pools:
            dtype = _real(right).dtype
            limits = limits_for(dtype, self.prepared.task.tolerance).times(self.prepared.leniency(case))
            self.pools[key] = Pool(dtype, limits, averages=case.averages)
        return self.pools[key]

    def _steady(self, case: Case) -> bool:
        """Draw the baseline's error many times, where one draw says little of it; False: was done before.

        That is where an output is small or its errors repeat. Done only when it looks wrong: a bound that grows turns
        no right answer into a wrong one.
        """
        if case.group in self._steadied or self.prepared.stateful:
            return False
        self._steadied.add(case.group)
        end = time.thread_time() + BASELINE_S.get(self.plan.name, 1.5)
        for draw in range(1, MIN_DRAWS):
            if time.thread_time() > end:
                break
            try:
                expected = self.prepared.expected(case, draw)
            except Skip:
                break
            for (path, right), exact in zip(expected.leaves, expected.exact, strict=True):
                if exact is not None and exact.numel():
                    self._pool(case, path, right).add_baseline(_real(right), exact)
        return True

    def undecided(self, group: Any) -> Outcome | None:
        outcomes = [pool.judge() for (g, _), pool in self.pools.items() if g == group]
        return next((o for o in outcomes if o.passed is None), None)

    def suspect(self, group: Any) -> bool:
        ratios = [(pool.ratio or 0.0) / pool.limits.rms for (g, _), pool in self.pools.items() if g == group]
        return max(ratios, default=0.0) > 1.0

    def small_groups(self) -> set[Group]:
        """Groups of which an output still lacks the draws for its RMS error."""
        return {group for (group, _), pool in self.pools.items() if pool.judge().passed is None}

    def biased(self) -> str:
        """In words, the mean error that is furthest from the baseline's and cannot be chance; or the empty string."""
        found = {
            f"{path} under {g[1]}": pool.bias.told()
            for (g, path), pool in self.pools.items()
            if g[2] == "none" and pool.averages
        }
        told = {label: means for label, means in found.items() if means is not None}
        if not told:
            return ""
        label, (own, right) = max(told.items(), key=lambda item: abs(item[1][0] - item[1][1]))
        way = "nearer to zero than" if own < 0 else "beyond"
        return (
            f"{label}: answers lie {abs(own):.2f} units in the last place {way} the right values on average, the "
            f"baseline's {abs(right):.2f}: within the rule on RMS errors, and what a constant slightly off would do"
        )

    def worst(self) -> Error | None:
        """The pool that comes nearest to its bound; exact baselines only where there is nothing else.

        A pool with too few draws for a ratio to mean something has no bound: it is told where there is no other.
        """
        told = [(g, pool) for (g, _), pool in self.pools.items() if pool.draws and g[2] == "none" and pool.told]
        if not told:
            return None
        judged = [(g, pool) for g, pool in told if pool.judge().passed is not None]
        pools = judged or told
        group, pool = max(
            pools,
            key=lambda p: (
                p[1].ratio is not None,
                p[1].candidate_rms if p[1].ratio is None else p[1].ratio / p[1].allowed,
            ),
        )
        variant, distribution, _, shape, expanded = group
        words = [f"variant {variant}"] if variant else []
        words += [distribution, f"shape {shape}"] if shape != GIVEN else [distribution]
        words += ["expanded"] if expanded else []
        return Error(
            pool.candidate_rms,
            pool.baseline_rms,
            pool.ratio,
            pool.largest_ulp,
            pool.mean_ulp,
            allowed=None if pool.ratio is None or not judged else pool.allowed,
            where=", ".join(words),
        )


def _real(x: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of reals."""
    import torch

    return torch.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x
