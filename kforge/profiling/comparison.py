"""The sides of a comparison taking turns: judge (baselines) and child (candidate), round by round.

The child's figures are believed only as far as its batches fit the judge's wall clock (CONTRACTS 5). What a call costs
beside itself (flush, restoring, launch, wait) is calibrated twice: in the child before it held the candidate, and by
the judge around its own baselines in every round, which leave L2 as dirty as the candidate does.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.profiling.agreement import agree, other_values
from kforge.profiling.effort import Effort
from kforge.profiling.samples import CANDIDATE, LIE, TRUSTED, Bound, Samples
from kforge.profiling.statistics import MIN_NOISE, median, pooled, ratio_of_rounds, verdict
from kforge.worker.timer import Timer, graphed, in_turn, make_timer, replayed, steady_overhead

if TYPE_CHECKING:
    from kforge.task.call import Call
    from kforge.worker import Child

_MIN_ROUNDS, _MAX_ITERATIONS = 3, 500
_MAX_LATENCY_S = 5e-4  # of a request and its answer; a child that claims more is not believed
_LEAD = 2  # calls ahead of a batch, under no clock: the GPU changes hands, the host wakes up
_REFUSALS = 6  # rounds in which the clocks disagreed, and hardly one in which they did not: it is not believed
_LEAST_CALLS, _MOST_CALLS = 4, 512  # of a graph that is replayed
_LONG_MS = 5.0  # calls in which no slow host shows
_HOST_CALLS = 16
_STEADY: dict[str, float] = {}  # what a call cost the judge beside itself when that was measured last, by device


# A baseline's name -> the function, the calls of a replay of it, and their graph, over inputs of its own.
Captured = dict[str, tuple[Callable[..., Any], int, Callable[[], Any]]]


@dataclass
class Side:
    """One side while it is being timed. `batch(n)` gives the samples of n calls."""

    name: str
    wrapper: str
    batch: Callable[[int], Sequence[float]]
    call_s: float
    rounds: list[tuple[float, ...]] = field(default_factory=list)

    def samples(self) -> Samples:
        return Samples(self.name, self.wrapper, tuple(pooled(self.rounds)), tuple(self.rounds))


@dataclass
class Round:
    """samples: by side; claims: wrapper -> (judge's wall clock, sum of the child's samples, calls), milliseconds;
    overheads: what a call of each baseline cost the judge beside itself."""

    samples: dict[int, tuple[float, ...]] = field(default_factory=dict)
    claims: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    overheads: list[float] = field(default_factory=list)


def _lead(count: int) -> int:
    """Calls ahead of a batch of `count`; none where one call is long beside what the change of hands takes.

    On an H200 the change put up to 0.4 ms between two batches into their wall clock, and into no sample: 4 % of a short
    batch, more than the clocks may disagree by.
    """
    return _LEAD if count > _LEAD + 1 else int(count > 1)


class Comparison:
    """The judge's inputs, timer and calibration, and the sides that take turns.

    captured: keeps the replays of baselines for later comparisons on the same values.
    """

    def __init__(
        self,
        child: Child,
        call: Call,
        mutated: Sequence[int],
        wrappers: Sequence[str],
        effort: Effort,
        captured: Captured | None = None,
    ) -> None:
        from kforge.task.call import clone_call
        from kforge.worker.tensors import tensor_leaves

        self.child, self.wrappers, self.effort = child, wrappers, effort
        self.captured = {} if captured is None else captured
        self.stages: dict[str, float] = {}
        self.skipped: dict[str, str] = {}
        self.sides: list[Side] = []
        self.functions: dict[str, Callable[..., Any]] = {}  # the baselines that are timed
        self.kept: list[Round] = []
        self.replays: list[Round] = []
        self.current = Round()
        self.short = False  # calls that replays must decide on
        begin = time.perf_counter()
        self.timer: Timer = make_timer(child.device)
        self.call = clone_call(call)
        leaves = tensor_leaves((self.call.args, self.call.kwargs))
        pristine = [(leaves[i], leaves[i].clone()) for i in mutated]

        def restore() -> None:
            for leaf, value in pristine:
                leaf.copy_(value)

        self.restore = restore if pristine else None
        self.armed = child.arm(call, wrappers, mutated=mutated, host_calls=_HOST_CALLS)
        self.call_us = {CANDIDATE: self.armed.host_us}
        for wrapper, text in self.armed.problems.items():
            self.skipped[f"{CANDIDATE}/{wrapper}"] = text
        for wrapper in wrappers:
            if wrapper not in self.armed.problems and self.computes(wrapper):
                self.sides.append(Side(CANDIDATE, wrapper, self._candidate(wrapper), self.armed.once_s))
        self.latency_s = min(_MAX_LATENCY_S, max(child.batch_ms * 1e-3, min(child.time(0).wall_s for _ in range(5))))
        begin = self._stage("arm", begin)
        self.bare_ms, self.batch_ms = steady_overhead(self._bare, _STEADY.get(child.device))
        _STEADY[child.device] = self.bare_ms
        self.empty_ms = median(self.timer.batch(lambda: None, _HOST_CALLS)) if child.device != "cpu" else 0.0
        self.own_ms = child.overhead_ms if child.overhead_ms is not None else self.bare_ms
        self._stage("calibration", begin)

    def _stage(self, name: str, begin: float) -> float:
        now = time.perf_counter()
        self.stages[name] = self.stages.get(name, 0.0) + now - begin
        return now

    def _bare(self, calls: int) -> float:
        """Milliseconds that calls cost the judge beside themselves: the loop around idle spinning."""
        begin = time.perf_counter()
        samples = self.timer.idle(calls)
        return (time.perf_counter() - begin) * 1e3 - math.fsum(samples)

    def computes(self, wrapper: str) -> bool:
        """Whether a captured graph gives the plain call's result on other values; "plain" is taken as it is.

        A capture can be empty (work on a stream that does not take part) or replay the values it was made with.
        """
        if wrapper == "plain":
            return True
        other = other_values(self.call)
        plain = self.child.call(other, place="other", state="none").outputs
        captured = self.child.call_armed(other, wrapper).outputs
        self.child.call_armed(self.call, wrapper)
        if agree(plain, captured):
            return True
        self.skipped[f"{CANDIDATE}/{wrapper}"] = "the captured graph does not give the call's result on other values"
        return False

    def _candidate(self, wrapper: str, calls: int = 1) -> Callable[[int], Sequence[float]]:
        """calls: that one timed call makes of the candidate; a replay finds L2 warm."""

        def batch(count: int) -> Sequence[float]:
            if lead := _lead(count):
                self.child.time(lead, flush=wrapper != "replay", wrapper=wrapper)
            found = self.child.time(count, flush=wrapper != "replay", wrapper=wrapper)
            self.current.claims[wrapper] = ((found.wall_s - self.latency_s) * 1e3, math.fsum(found.ms), count)
            return [ms / calls for ms in found.ms]

        return batch

    def _baseline(self, fn: Callable[[], Any], calls: int = 0) -> Callable[[int], Sequence[float]]:
        """calls: that a replay makes, 0 for a cold call."""

        def batch(count: int) -> Sequence[float]:
            if lead := _lead(count):
                self.timer.batch(fn, lead, not calls, self.restore)
            begin = time.perf_counter()
            found = self.timer.batch(fn, count, not calls, self.restore)
            wall = (time.perf_counter() - begin) * 1e3 - self.batch_ms
            self.current.overheads.append((wall - math.fsum(found)) / count)
            return [ms / max(1, calls) for ms in found]

        return batch

    def add_baseline(self, name: str, fn: Callable[..., Any], slowest_call_s: float) -> None:
        """Warm a baseline up under each wrapper; what cannot be captured, or takes too long, is skipped by name."""
        args, kwargs = self.call.args, self.call.kwargs

        def plain() -> Any:
            return fn(*args, **kwargs)

        try:
            once = self._once(plain)
        except Exception as error:  # a compiler may raise anything, for one shape and not for another
            if name == "eager":
                raise
            self.skipped[name] = f"{type(error).__name__}: {error}"[:500]
            return
        if once > slowest_call_s:  # the first call of a compiled baseline compiles
            once = self._once(plain)
        if once > slowest_call_s:
            self.skipped[name] = f"one call takes {once:.1f} s (limit {slowest_call_s:g} s)"
            return
        once = min(self._once(plain) for _ in range(2))
        self.functions[name] = fn
        self.call_us[name] = self._host_us(plain, _HOST_CALLS if once < 0.05 else 1)
        self.sides.append(Side(name, "plain", self._baseline(plain), once))
        if "graph" in self.wrappers and not getattr(fn, "captures_itself", False):
            try:
                self.sides.append(Side(name, "graph", self._baseline(graphed(fn, args, kwargs)), once))
            except RuntimeError as error:
                self.skipped[f"{name}/graph"] = str(error)[:500]

    def _once(self, fn: Callable[[], Any]) -> float:
        if self.restore is not None:
            self.restore()
        begin = time.perf_counter()
        fn()
        self.timer.wait()
        return time.perf_counter() - begin

    def _host_us(self, fn: Callable[[], Any], calls: int) -> float:
        """Microseconds until a call returns to its caller, the GPU not waited for."""
        took = []
        for _ in range(calls):
            if self.restore is not None:
                self.restore()
            begin = time.perf_counter()
            fn()
            took.append(time.perf_counter() - begin)
        self.timer.wait()
        return median(took) * 1e6

    def measure(self) -> None:
        """Rounds with L2 flushed before every call, of plain calls and graphs."""
        begin = time.perf_counter()
        overhead_s = self.bare_ms * 1e-3
        each_s = []
        for side in self.sides:  # caches settle; the estimate of a call gets real
            found = median(side.batch(min(4, self._iterations(side.call_s + overhead_s))))
            each_s.append(found * 1e-3 + overhead_s)
            self.short = self.short or ((side.name, side.wrapper) == (CANDIDATE, "plain") and self._too_short(found))
        batch_s = self.effort.short_s if self.short else self.effort.batch_s
        counts = [self._iterations(seconds, batch_s) for seconds in each_s]
        self.kept = self._turns(self.sides, counts, _MIN_ROUNDS if self.short else None)
        self._stage("rounds", begin)

    def _turns(self, sides: Sequence[Side], counts: Sequence[int], few: int | None = None) -> list[Round]:
        """Rounds in random order of sides until enough are accepted or the budget is spent; fills Side.rounds.

        A round counts when the judge's clock bears the candidate's batches out; a busy host disturbs some rounds, a
        clock that lies or work on a hidden stream disturbs all. With too few accepted, all are kept and the bound says
        that they are not believed. few: so many rounds of either kind, where others decide.
        """
        wanted, patience = (few, 1) if few else (self.effort.rounds, self.effort.patience)
        end = time.perf_counter() + self.effort.budget_s
        accepted: list[Round] = []
        refused: list[Round] = []
        while len(accepted) >= _MIN_ROUNDS or len(refused) < (few or _REFUSALS):
            samples = [[found.samples[i] for found in accepted] for i in range(len(sides))]
            if self._enough(sides, samples, wanted, patience, time.perf_counter() > end, self.effort.every):
                break
            found = self._round(sides, counts)
            fits = all(bound.accepted for bound in self._bounds([found]).values())
            (accepted if fits else refused).append(found)
        kept = accepted if len(accepted) >= _MIN_ROUNDS else accepted + refused
        for i, side in enumerate(sides):
            side.rounds = [found.samples[i] for found in kept]
        return kept

    def _too_short(self, call_ms: float) -> bool:
        """Whether the judge's clock cannot bound such a call well enough: then the verdict is the replays'."""
        return Bound(1.0, call_ms, self.bare_ms, 1).kernel > TRUSTED

    @staticmethod
    def _enough(
        sides: Sequence[Side],
        rounds: Sequence[Sequence[Sequence[float]]],
        wanted: int,
        patience: int,
        late: bool,
        every: int = 4,
    ) -> bool:
        """Whether the rounds made so far will do; from `wanted` on it is asked every so many what they say.

        More would change nothing once the interval against the fastest baseline lies on one side of the least noise.
        """
        count = len(rounds[0])
        if count < _MIN_ROUNDS:
            return False
        if late or count >= wanted * patience:
            return True
        if count < wanted or (count - wanted) % every:
            return False
        medians = [median(pooled(found)) for found in rounds]
        ours = [i for i, side in enumerate(sides) if side.name == CANDIDATE]
        theirs = [i for i, side in enumerate(sides) if side.name != CANDIDATE]
        if not ours or not theirs:
            return True
        best, rival = (min(group, key=medians.__getitem__) for group in (ours, theirs))
        return verdict(ratio_of_rounds(rounds[rival], rounds[best]), MIN_NOISE) != "unclear"

    def _iterations(self, seconds_each: float, batch_s: float | None = None) -> int:
        """Calls of a batch, within reason; one where a single call takes a tenth of a second."""
        least, wanted_s = 1 if seconds_each > 0.1 else 3, batch_s or self.effort.batch_s
        return max(least, min(_MAX_ITERATIONS, math.ceil(wanted_s / max(seconds_each, 1e-7))))

    def _round(self, sides: Sequence[Side], counts: Sequence[int]) -> Round:
        """One batch of every side."""
        self.current = found = Round()
        order = list(range(len(sides)))
        random.SystemRandom().shuffle(order)
        for i in order:
            found.samples[i] = tuple(sides[i].batch(counts[i]))
        return found

    def bounds(self) -> dict[str, Bound]:
        """The bound over all rounds that were kept, by wrapper."""
        return self._bounds(self.kept) | (self._bounds(self.replays) if self.replays else {})

    def each_round(self) -> tuple[dict[str, Bound], ...]:
        """The bounds of every round that was kept."""
        return tuple(self._bounds([found]) for found in (*self.kept, *self.replays))

    def _bounds(self, rounds: Sequence[Round]) -> dict[str, Bound]:
        """The overhead that fits best within the range which the judge saw around its own baselines."""
        least = self.own_ms - self.bare_ms + median([min(r.overheads, default=self.bare_ms) for r in rounds])
        most = self.own_ms - self.bare_ms + median([max(r.overheads, default=self.bare_ms) for r in rounds])
        found: dict[str, Bound] = {}
        for wrapper in rounds[0].claims:
            wall, claimed, calls = (sum(parts) for parts in zip(*(r.claims[wrapper] for r in rounds), strict=True))
            overhead = min(max((wall - claimed) / calls, least), most)
            found[wrapper] = Bound(wall, claimed, overhead, int(calls), max(0.0, overhead - least))
        return found

    def doubtful(self) -> bool:
        """Whether the judge's clock bounds single calls too loosely, or disagrees by what a slow host can cost.

        A host that falls behind costs tens of microseconds a call: little to a graph of calls, nothing to a long call.
        """
        bounds = self._bounds(self.kept).values()
        if self.short or any(bound.kernel > TRUSTED for bound in bounds):
            return True
        if all(bound.accepted for bound in bounds) or any(abs(bound.difference) > LIE for bound in bounds):
            return False
        return all(median(pooled(side.rounds)) < _LONG_MS for side in self.sides if side.name == CANDIDATE)

    def measure_replays(self) -> None:
        """Rounds of graphs of several calls that find L2 warm: long enough for the judge's clock to bound them."""
        begin = time.perf_counter()
        plain = {side.name: side for side in self.sides if side.wrapper == "plain"}
        call_s = max(1e-6, median(pooled(plain[CANDIDATE].rounds)) * 1e-3)  # a liar may say zero
        calls = max(_LEAST_CALLS, min(_MOST_CALLS, int(self.effort.graph_s / call_s)))
        calls = 1 << round(math.log2(calls))  # the graphs of baselines serve other candidates too
        armed = self.child.arm(self.call, ("plain", "replay"), replay=calls)
        if armed.problems:
            self.skipped[f"{CANDIDATE}/replay"] = "; ".join(armed.problems.values())
        elif self.computes("replay"):
            self._replay_rounds(calls, call_s)
        self._stage("replay", begin)

    def _replay_rounds(self, calls: int, call_s: float) -> None:
        sides = [Side(CANDIDATE, "replay", self._candidate("replay", calls), call_s)]
        args, kwargs = self.call.args, self.call.kwargs
        for name, fn in self.functions.items():
            if getattr(fn, "captures_itself", False):
                continue
            made_for, made_of, made = self.captured.get(name, (None, 0, None))
            try:
                if made is not None and made_for is fn and made_of == calls:
                    run = made
                elif self.restore is not None:
                    run = replayed([lambda fn=fn: fn(*args, **kwargs)], calls)  # type: ignore[misc]
                else:
                    run = replayed(in_turn(fn, args, kwargs), calls)
                    self.captured[name] = fn, calls, run
            except RuntimeError as error:
                self.skipped[f"{name}/replay"] = str(error)[:500]
                continue
            sides.append(Side(name, "replay", self._baseline(run, calls), call_s))
        counts = []
        for side in sides:  # the clocks rise while this is found out
            once_s = median(side.batch(4)) * calls * 1e-3
            counts.append(self._iterations(once_s + self.bare_ms * 1e-3))
        self.replays = self._turns(sides, counts)
        self.sides += sides

    def measure_warm(self) -> None:
        """Plain calls again with L2 as the call before left it: beside the cold figures, never for a verdict."""
        begin = time.perf_counter()
        args, kwargs = self.call.args, self.call.kwargs
        for side in [side for side in self.sides if side.wrapper == "plain" and side.rounds]:
            count = min(20, self._iterations(median(pooled(side.rounds)) * 1e-3))
            fn = self.functions.get(side.name)
            if fn is None:
                found: Sequence[float] = self.child.time(count, flush=False).ms
            else:
                found = self.timer.batch(lambda fn=fn: fn(*args, **kwargs), count, False, self.restore)  # type: ignore[misc]
            warm = Side(side.name, "warm", side.batch, side.call_s)
            warm.rounds = [tuple(found)]
            self.sides.append(warm)
        self._stage("warm", begin)

    def measure_amortised(self) -> None:
        """The candidate's plain calls without what deriving weights costs: beside its figures, never for a verdict."""
        plain = next((s for s in self.sides if (s.name, s.wrapper) == (CANDIDATE, "plain") and s.rounds), None)
        if plain is None or not self.armed.derived:
            return
        count = min(50, self._iterations(median(pooled(plain.rounds)) * 1e-3))
        self.child.time(_LEAD, wrapper="amortised")
        found = Side(CANDIDATE, "amortised", plain.batch, plain.call_s)
        found.rounds = [tuple(self.child.time(count, wrapper="amortised").ms)]
        self.sides.append(found)
