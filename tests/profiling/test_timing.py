"""The two-process arrangement on the host's clock: what it measures and what it does not let through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kforge.errors import ChildFailed, UsageError
from kforge.kernel.candidate import Candidate
from kforge.profiling.agreement import agree, other_values
from kforge.profiling.baselines import BASELINES, make_baseline
from kforge.profiling.comparison import Comparison, Side
from kforge.profiling.gpu_state import gpu_state
from kforge.profiling.samples import CANDIDATE, Bound, Samples, Timing
from kforge.profiling.statistics import verdict
from kforge.profiling.timing import Effort, time_against
from kforge.task.call import Call
from kforge.worker import Child, Limits, Zygote
from kforge.worker.timer import steady_overhead

SLEEPS = """
import time, torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {lines}
        return x
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as parent:
        yield parent


@pytest.fixture
def timed(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[[str], Child]]:
    """timed(lines) loads a candidate whose forward runs these lines, ready to be timed."""
    children: list[Child] = []

    def make(lines: str) -> Child:
        child = zygote.fork(tmp_path / f"box{len(children)}", limits=Limits(call_s=120))
        children.append(child)
        source = SLEEPS.format(lines=lines)
        child.load(Candidate("op_kforge.py", {"op_kforge.py": source}), Call(), {}, timer=True)
        return child

    yield make
    for child in children:
        child.close()


def nap(seconds: float) -> Callable[..., torch.Tensor]:
    def fn(x: torch.Tensor) -> torch.Tensor:
        time.sleep(seconds)
        return x

    return fn


ONE = Call((torch.ones(4),))
SHORT = Effort(rounds=3, patience=1, budget_s=0.2)


def test_twice_as_fast_is_about_two(timed: Callable[[str], Child]) -> None:
    """A candidate that takes half of the baseline's time gets a ratio of about 2, and the clocks agree."""
    for _ in range(40):  # others on this machine may come between the child's clock and the judge's, and into a nap
        timing = time_against(timed("time.sleep(0.02)"), ONE, {"eager": nap(0.04)}, effort=SHORT)
        ratio = timing.ratio("eager")
        if timing.bounds["plain"].accepted and ratio is not None and ratio.ratio == pytest.approx(2.0, rel=0.15):
            break
    assert ratio is not None and ratio.ratio == pytest.approx(2.0, rel=0.15)
    assert timing.bounds["plain"].accepted and timing.believed and timing.basis == "events"
    assert verdict(ratio, 0.05) == "faster"
    samples = timing.of(CANDIDATE)
    assert samples is not None and len(samples.rounds) == 3 and samples.median >= 20.0


def test_what_deriving_weights_costs_is_in_the_time(timed: Callable[[str], Child]) -> None:
    """Each timed call derives its weights again, which takes 20 ms here; a call that finds them stands beside it."""
    derive = "kforge.kernel.prepared(WEIGHT, lambda w: (time.sleep(0.02), w.neg())[1])"
    child = timed(f"import kforge.kernel; global WEIGHT; WEIGHT = globals().get('WEIGHT', torch.ones(3)); {derive}")
    timing = time_against(child, ONE, {"eager": nap(0.02)}, effort=SHORT)
    whole, amortised = timing.best(CANDIDATE), timing.of(CANDIDATE, "amortised")
    assert whole is not None and whole.wrapper == "plain" and whole.median >= 20
    assert amortised is not None and amortised.median < 20


def test_every_baseline_has_as_many_rounds(timed: Callable[[str], Child]) -> None:
    """All sides take turns: the same number of rounds each, at least three whatever the budget."""
    timing = time_against(timed("time.sleep(0.002)"), ONE, {"a": nap(0.002), "b": nap(0.004)}, effort=SHORT)
    assert {s.name for s in timing.samples} == {CANDIDATE, "a", "b"}
    assert len({len(s.rounds) for s in timing.samples}) == 1 and len(timing.samples[0].rounds) >= 3


def test_a_patched_clock_is_caught_by_the_judges(timed: Callable[[str], Child]) -> None:
    """A candidate that makes its own clock run slow is not believed: the judge's wall clock disagrees."""
    patch = (
        "import gc, kforge.worker.timer as t\n"
        "        for o in gc.get_objects():\n"
        "            if type(o) is t.HostTimer and not hasattr(o, 'lied'):\n"
        "                o.lied, honest = True, o.batch\n"
        "                o.batch = lambda *a, **k: [m / 10 for m in honest(*a, **k)]\n"
        "        time.sleep(0.003)"
    )
    timing = time_against(timed(patch), ONE, {"eager": nap(0.003)}, effort=SHORT)
    assert not timing.bounds["plain"].accepted and not timing.believed
    assert timing.bounds["plain"].difference > 0.5


def test_a_slow_baseline_is_skipped_by_name(timed: Callable[[str], Child]) -> None:
    """A baseline over its limit is not timed, and the reason is kept."""
    timing = time_against(
        timed("time.sleep(0.002)"), ONE, {"slow": nap(1.0), "quick": nap(0.002)}, effort=SHORT, slowest_call_s=0.5
    )
    assert "slow" in timing.skipped and timing.of("slow") is None and timing.ratio("slow") is None
    assert timing.of("quick") is not None


def test_mutated_inputs_are_restored(timed: Callable[[str], Child]) -> None:
    """Each timed call sees the first value of an input that calls change, on both sides."""
    check = "assert x[0] == 1, x[0]; x.add_(1)"

    def judge(x: torch.Tensor) -> torch.Tensor:
        assert x[0] == 1
        return x.add_(1)

    x = torch.ones(4)
    timing = time_against(timed(check), Call((x,)), {"eager": judge}, effort=SHORT, mutated=[0])
    assert timing.of("eager") is not None and x[0] == 1
    with pytest.raises(ChildFailed):
        time_against(timed(check), Call((x,)), {}, effort=SHORT)


def test_a_candidate_that_hangs_while_timed(timed: Callable[[str], Child]) -> None:
    """A crash under the timer is the candidate's failure, with its kind."""
    lines = "self.n = getattr(self, 'n', 0) + 1\n        if self.n > 6: __import__('os').abort()"
    with pytest.raises(ChildFailed) as caught:
        time_against(timed(lines), ONE, {"eager": nap(0.001)}, effort=SHORT)
    assert caught.value.kind == "crashed"


def test_bound_arithmetic() -> None:
    """10 us under 90 us of overhead are bounded to 30 %, 1 ms to 3.3 %; hidden work shows as a difference."""
    assert Bound(10.0, 1.0, 0.09, 100).kernel == pytest.approx(0.3)
    assert Bound(109.0, 100.0, 0.09, 100).kernel == pytest.approx(0.0327, rel=1e-2)
    assert Bound(10.0, 1.0, 0.09, 100).accepted
    hidden = Bound(20.0, 1.0, 0.09, 100)
    assert hidden.difference == pytest.approx(0.5) and not hidden.accepted and "DISAGREE" in str(hidden)


def test_a_loose_bound_reaches_into_the_interval() -> None:
    """Where neither clock nor replay can confirm a short kernel, the interval is as wide as the doubt."""
    ours = Samples(CANDIDATE, "plain", (0.01,) * 10, ((0.01,) * 10,))
    theirs = Samples("eager", "plain", (0.012,) * 10, ((0.012,) * 10,))
    bound = Bound(10.0, 1.0, 0.09, 100)
    timing = Timing((ours, theirs), {"plain": bound}, {}, gpu_state("cpu"), 0.0)
    ratio = timing.ratio("eager")
    assert ratio is not None and ratio.ratio == pytest.approx(1.2) and ratio.low == pytest.approx(1.2 / 1.3)
    assert verdict(ratio, 0.02) == "unclear"


def test_the_overheads_own_spread_counts_where_nothing_else_confirms() -> None:
    """10 us claimed under 80 to 90 us of overhead may be 23 us: a ratio of 2 is no longer beyond doubt."""
    ours = Samples(CANDIDATE, "plain", (0.01,) * 10, ((0.01,) * 10,))
    theirs = Samples("eager", "plain", (0.02,) * 10, ((0.02,) * 10,))
    bound = Bound(10.0, 1.0, 0.09, 100, slack_ms=0.01)
    assert bound.kernel == pytest.approx(0.3) and bound.reach == pytest.approx(1.3)
    ratio = Timing((ours, theirs), {"plain": bound}, {}, gpu_state("cpu"), 0.0).ratio("eager")
    assert ratio is not None and ratio.low == pytest.approx(2.0 / 2.3) and verdict(ratio, 0.02) == "unclear"


def test_events_around_nothing_are_not_believed() -> None:
    """A call as short as two events with nothing between is timed where it does not run; twice as long is a call."""
    gpu = gpu_state("cpu")

    def timing(ms: float, *more: Samples) -> Timing:
        ours = Samples(CANDIDATE, "plain", (ms,) * 10, ((ms,) * 10,))
        bounds = {s.wrapper: Bound(100 * ms + 10, 100 * ms, 0.1, 100) for s in (ours, *more)}
        return Timing((ours, *more), bounds, {}, gpu, 0.0, empty_ms=0.00128)

    assert timing(0.00131).unseen and not timing(0.00131).believed and not timing(0.00131).lying
    assert not timing(0.0025).unseen and timing(0.0025).believed
    replay = Samples(CANDIDATE, "replay", (0.00131,) * 10, ((0.00131,) * 10,))
    assert timing(0.00131, replay).believed  # the graph was seen to compute, and the clock bounds it


def made(difference: float, others: tuple[str, ...] = (), ms: float = 1.0, overheads: tuple[float, ...] = ()) -> Timing:
    """One wrapper, 100 calls of `ms` whose wall clock is longer by `difference` of itself."""
    samples = Samples(CANDIDATE, "plain", (ms,) * 10, ((ms,) * 10,))
    bound = Bound((100 * ms + 10) / (1 - difference), 100 * ms, 0.1, 100)
    gpu = replace(gpu_state("cpu"), others=others)
    return Timing((samples,), {"plain": bound}, {}, gpu, 0.0, overheads_ms=overheads)


def test_a_clock_that_lies_is_told_from_a_gpu_that_is_shared() -> None:
    """30 % unaccounted for is a lie on a quiet GPU, and no more than disbelief where others use it; zero is a lie."""
    assert made(0.3).lying and not made(0.3).believed and not made(0.01).lying and made(0.01).believed
    shared = made(0.3, others=("python (7)",))
    assert not shared.lying and not shared.believed and "python (7)" in shared.disturbed
    uneven = made(0.3, overheads=(0.1, 0.1, 0.2))
    assert not uneven.lying and "0.100 to 0.200" in uneven.disturbed
    assert made(0.0, ms=0.0, others=("python (7)",)).lying


def test_a_verdict_on_replays_rests_on_their_own_bound() -> None:
    """A short call is lost in the loop around it: the replays must fit the judge's clock, and one lie is enough."""
    ours = Samples(CANDIDATE, "plain", (0.01,) * 10, ((0.01,) * 10,))
    replays = Samples(CANDIDATE, "replay", (0.008,) * 10, ((0.008,) * 10,))

    def timing(short: Bound, long: Bound) -> Timing:
        bounds = {"plain": short, "replay": long}
        each = ({"plain": short}, {"replay": long})
        return Timing((ours, replays), bounds, {}, gpu_state("cpu"), 0.0, each=each)

    loose, fits = Bound(12.0, 1.0, 0.1, 100), Bound(170.5, 150.0, 0.2, 100)
    assert not loose.accepted and timing(loose, fits).basis == "replay" and timing(loose, fits).believed
    short = Bound(185.0, 150.0, 0.2, 100)
    assert not timing(loose, short).believed and not timing(loose, short).lying
    assert timing(Bound(20.0, 1.0, 0.1, 100), fits).lying and timing(loose, Bound(300.0, 150.0, 0.2, 100)).lying


def test_agreement_of_trees() -> None:
    """Values within one percent agree; stale, missing or misshapen ones do not; NaN agrees with NaN only."""
    x = torch.rand(10) + 1
    assert agree({"a": x, "b": 2}, {"a": x * 1.001, "b": 2})
    assert not agree({"a": x}, {"a": x * 0.75}) and not agree([x], [x[:5]]) and not agree([x], (x,))
    nan = torch.full((3,), float("nan"))
    assert agree(nan, nan) and not agree(nan, torch.ones(3))
    assert agree(torch.arange(3), torch.arange(3)) and not agree(torch.arange(3), torch.zeros(3, dtype=torch.int64))
    assert not agree(other_values(Call((x,))).args, (x,))


def test_an_armed_wrapper_can_be_called_onother_values(timed: Callable[[str], Child]) -> None:
    """call_armed refills the inputs in place and brings the outputs, so that a stale graph can be seen."""
    child = timed("x = x * 2")
    child.arm(ONE)
    assert torch.equal(child.call_armed(Call((torch.full((4,), 5.0),)), "plain").outputs, torch.full((4,), 10.0))
    with pytest.raises(UsageError):
        child.call_armed(Call((torch.ones(5),)), "plain")


def test_baselines_are_a_registry() -> None:
    """The makers are listed; an unknown one names what exists; eager is the module itself."""
    module = torch.nn.Identity()
    assert make_baseline("eager", module) is module
    assert {"eager", "compile_default", "compile_reduce_overhead", "compile_max_autotune"} <= set(BASELINES)
    with pytest.raises(UsageError) as caught:
        make_baseline("nothing", module)
    assert "compile_default" in caught.value.hint


def test_gpu_state_without_a_gpu_says_why() -> None:
    """No GPU, no figures, a reason."""
    assert gpu_state("cpu").reason == "no GPU" and gpu_state("cpu").warnings == ()


def test_rounds_go_on_while_the_verdict_is_open() -> None:
    """Clear sides stop at the rounds wanted, open ones go on to `patience` times as many, late ones stop at three."""
    sides = [Side(CANDIDATE, "plain", lambda count: [], 1.0), Side("eager", "plain", lambda count: [], 1.0)]

    def enough(theirs: list[float], late: bool = False) -> bool:
        rounds = [[(1.0,)] * len(theirs), [(ms,) for ms in theirs]]
        return Comparison._enough(sides, rounds, 4, 2, late)

    assert not enough([]) and not enough([2.0] * 2, late=True) and enough([2.0] * 3, late=True)
    assert not enough([2.0] * 3) and enough([2.0] * 4)
    assert not enough([0.9, 1.1, 0.9, 1.1]) and enough([0.9, 1.1] * 4)


def test_a_steady_overhead_is_found_from_two_lengths_of_batches() -> None:
    """0.12 ms a call and 0.3 ms a batch, exact once a slow start is over; without agreement it still ends."""
    calls: list[int] = []

    def excess(count: int) -> float:
        calls.append(count)
        return 0.3 + count * (0.2 if len(calls) <= 4 else 0.12)

    each, batch = steady_overhead(excess)
    assert each == pytest.approx(0.12) and batch == pytest.approx(0.3) and len(calls) == 10
    del calls[4:]
    assert steady_overhead(excess, known=0.119)[0] == pytest.approx(0.12) and len(calls) == 6
    assert steady_overhead(excess, known=0.1)[0] == pytest.approx(0.12) and len(calls) == 12
    wild = iter(range(1, 1000))
    each, batch = steady_overhead(lambda count: count * float(next(wild)))
    assert each > 0 and batch >= 0
