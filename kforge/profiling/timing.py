"""Is it faster? Rounds in which judge (baselines) and child (candidate) take turns, bounded by the judge's own clock.

The child's figures are believed only as far as its batches fit the judge's wall clock (CONTRACTS 5). Nothing here
decides a verdict: it returns samples, the bound, the GPU's state; statistics.py says what they mean.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError
from kforge.profiling.gpu_state import gpu_state
from kforge.profiling.samples import CANDIDATE, TRUSTED, Bound, Samples, Timing
from kforge.profiling.statistics import median, noise_floor, pooled
from kforge.worker.timer import Timer, graphed, make_timer, replayed

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task.call import Call
    from kforge.worker import Child, Zygote

__all__ = ["CANDIDATE", "Bound", "Samples", "Timing", "measure_noise", "time_against"]

BATCH_S = 0.02  # the shortest stretch over which the two clocks are compared
_MIN_ROUNDS, _MAX_ITERATIONS = 3, 500
_MAX_LATENCY_S = 5e-4  # of a request and its answer; a child that claims more is not believed
_REPLAY_ROUNDS = 6
_WARM_UP_S = 0.04
_SPIN_CYCLES, _SPINS = 30_000, 50  # about 0.02 ms each
_REFUSALS = 8  # rounds in which the clocks disagreed before the candidate is not believed


@dataclass
class _Side:
    """One side while it is being timed. `batch(n)` gives the samples of n calls."""

    name: str
    wrapper: str
    batch: Callable[[int], Sequence[float]]
    call_s: float
    rounds: list[tuple[float, ...]] = field(default_factory=list)

    def samples(self) -> Samples:
        return Samples(self.name, self.wrapper, tuple(pooled(self.rounds)), tuple(self.rounds))


def time_against(
    child: Child,
    call: Call,
    baselines: Mapping[str, Callable[..., Any]],
    *,
    budget_s: float = 0.4,
    rounds: int = 5,
    wrappers: Sequence[str] = ("plain",),
    mutated: Sequence[int] = (),
    precision: str = "highest",
    slowest_call_s: float = 5.0,
) -> Timing:
    """Time the child's loaded candidate (load(timer=True)) against baselines that the judge calls in its own process.

    baselines: name -> callable with the reference's parameters. mutated: numbers of the input tensors that a call
    changes, restored outside the time. wrappers: "plain", "graph" (CUDA graph over static input copies, both sides).
    At least 3 rounds are made whatever the budget; a baseline slower than `slowest_call_s` a call is skipped, with a
    word. ChildFailed when the candidate fails. Everything runs under torch.no_grad at the task's precision.
    """
    import torch

    from kforge.task.precision import Precision, matmul_precision

    if "plain" not in wrappers:
        raise ValueError("the plain wrapper is always timed: the bound rests on it")
    begin = time.perf_counter()
    state = gpu_state(child.device)
    place = torch.cuda.device(child.device) if child.device != "cpu" else nullcontext()
    with torch.no_grad(), matmul_precision(Precision(precision)), place:
        match = _Comparison(child, call, mutated, wrappers)
        for name, fn in baselines.items():
            match.add_baseline(name, fn, slowest_call_s)
        match.measure(budget_s, rounds)
        if child.device != "cpu" and match.bounds()["plain"].kernel > TRUSTED:
            match.measure_replays(baselines)
    return Timing(
        samples=tuple(side.samples() for side in match.sides if side.rounds),
        bounds=match.bounds(),
        skipped=match.skipped,
        gpu=state,
        seconds=time.perf_counter() - begin,
    )


@dataclass(frozen=True)
class _Round:
    """samples: by side; claims: wrapper -> (judge's wall clock, sum of the child's samples, calls), milliseconds."""

    samples: dict[int, tuple[float, ...]]
    claims: dict[str, tuple[float, float, int]]


class _Comparison:
    """The judge's inputs, timer and calibration, and the sides that take turns."""

    def __init__(self, child: Child, call: Call, mutated: Sequence[int], wrappers: Sequence[str]) -> None:
        from kforge.task.call import clone_call
        from kforge.worker.tensors import tensor_leaves

        self.child, self.wrappers = child, wrappers
        self.timer: Timer = make_timer(child.device)
        self.call = clone_call(call)
        leaves = tensor_leaves((self.call.args, self.call.kwargs))
        pristine = [(leaves[i], leaves[i].clone()) for i in mutated]

        def restore() -> None:
            for leaf, value in pristine:
                leaf.copy_(value)

        self.restore = restore if pristine else None
        self.skipped: dict[str, str] = {}
        self.sides: list[_Side] = []
        self.claims: dict[str, tuple[float, float, int]] = {}
        self.kept: list[_Round] = []
        armed = child.arm(call, wrappers, mutated=mutated)
        for wrapper, text in armed.problems.items():
            self.skipped[f"{CANDIDATE}/{wrapper}"] = text
        for wrapper in wrappers:
            if wrapper not in armed.problems and self._computes(wrapper):
                self.sides.append(_Side(CANDIDATE, wrapper, self._candidate(wrapper), armed.once_s))
        self.mutated = mutated
        self.latency_s = min(_MAX_LATENCY_S, min(child.time(0).wall_s for _ in range(5)))
        settled = time.perf_counter() + _WARM_UP_S
        while time.perf_counter() < settled:  # the clocks of an idle GPU rise slowly
            self._overhead()
        self.overheads = [self._overhead()]
        # What the child's loop cost before it held the candidate, against ours at about the same time: from here on
        # only ours is measured, and the host's speed changes both.
        bare = self._overhead(restore=False)
        self.slower = (child.overhead_ms or bare) / bare

    def _computes(self, wrapper: str) -> bool:
        """Whether a captured graph gives the plain call's result on other values; "plain" is taken as it is.

        A capture can be empty (work on a stream that does not take part) or replay the values it was made with.
        """
        if wrapper == "plain":
            return True
        other = _other_values(self.call)
        plain = self.child.call(other, place="other", state="none").outputs
        captured = self.child.call_armed(other, wrapper).outputs
        self.child.call_armed(self.call, wrapper)
        if _agree(plain, captured):
            return True
        self.skipped[f"{CANDIDATE}/{wrapper}"] = "the captured graph does not give the call's result on other values"
        return False

    def _candidate(self, wrapper: str) -> Callable[[int], Sequence[float]]:
        def batch(count: int) -> Sequence[float]:
            found = self.child.time(count, wrapper=wrapper)
            wall = (found.wall_s - self.latency_s) * 1e3
            self.claims[wrapper] = (wall, math.fsum(found.ms), count)
            return found.ms

        return batch

    def _overhead(self, restore: bool = True) -> float:
        """Milliseconds a call costs beside itself (flush, restoring, launch, wait): our loop around idle spinning."""
        spin = getattr(self.timer, "spin", None)
        fn = (lambda: spin(_SPIN_CYCLES)) if spin else (lambda: None)
        begin = time.perf_counter()
        samples = self.timer.batch(fn, _SPINS, before=self.restore if restore else None)
        return ((time.perf_counter() - begin) * 1e3 - math.fsum(samples)) / _SPINS

    def add_baseline(self, name: str, fn: Callable[..., Any], slowest_call_s: float) -> None:
        """Warm a baseline up under each wrapper; what cannot be captured, or takes too long, is skipped by name."""
        args, kwargs = self.call.args, self.call.kwargs

        def plain() -> Any:
            return fn(*args, **kwargs)

        once = self._once(plain)
        if once > slowest_call_s:  # the first call of a compiled baseline compiles
            once = self._once(plain)
        if once > slowest_call_s:
            self.skipped[name] = f"one call takes {once:.1f} s (limit {slowest_call_s:g} s)"
            return
        once = min(self._once(plain) for _ in range(2))
        self._add(name, "plain", plain, once)
        if "graph" in self.wrappers:
            try:
                self._add(name, "graph", graphed(fn, args, kwargs), once)
            except RuntimeError as error:
                self.skipped[f"{name}/graph"] = str(error)[:500]

    def _once(self, fn: Callable[[], Any]) -> float:
        if self.restore is not None:
            self.restore()
        begin = time.perf_counter()
        fn()
        self.timer.wait()
        return time.perf_counter() - begin

    def _add(self, name: str, wrapper: str, fn: Callable[[], Any], once_s: float) -> None:
        self.sides.append(_Side(name, wrapper, lambda count: self.timer.batch(fn, count, before=self.restore), once_s))

    def measure(self, budget_s: float, rounds: int) -> None:
        """Rounds in random order of sides until `rounds` are accepted or the budget is spent.

        A round counts when the judge's clock bears the candidate's batches out; a busy host disturbs some rounds, a
        clock that lies or work on a hidden stream disturbs all. With too few accepted, all are kept and the bound says
        that they are not believed.
        """
        overhead_s = median(self.overheads) * 1e-3
        counts = [_iterations(side.call_s + overhead_s) for side in self.sides]
        for _ in range(2):  # clocks and caches settle; the estimate of a call gets real
            for i, side in enumerate(self.sides):
                found = side.batch(min(3, counts[i]))
                counts[i] = _iterations(median(found) * 1e-3 + overhead_s)
        end = time.perf_counter() + budget_s
        accepted: list[_Round] = []
        refused: list[_Round] = []
        while len(accepted) < _MIN_ROUNDS or (len(accepted) < rounds and time.perf_counter() < end):
            found_round = self._round(counts)
            agree = all(bound.accepted for bound in self._bounds([found_round]).values())
            (accepted if agree else refused).append(found_round)
            if len(refused) >= _REFUSALS:
                break
        self.kept = accepted if len(accepted) >= _MIN_ROUNDS else accepted + refused
        for i, side in enumerate(self.sides):
            side.rounds = [found.samples[i] for found in self.kept]

    def _round(self, counts: Sequence[int]) -> _Round:
        """One batch of every side, and the loop's own overhead measured beside it."""
        self.claims = {}
        samples: dict[int, tuple[float, ...]] = {}
        order = list(range(len(self.sides)))
        random.SystemRandom().shuffle(order)
        for i in order:
            samples[i] = tuple(self.sides[i].batch(counts[i]))
        self.overheads.append(self._overhead())
        return _Round(samples, self.claims)

    def bounds(self) -> dict[str, Bound]:
        """The bound over all rounds that were kept, by wrapper."""
        return self._bounds(self.kept)

    def _bounds(self, rounds: Sequence[_Round]) -> dict[str, Bound]:
        overhead = median(self.overheads) * self.slower
        found: dict[str, Bound] = {}
        for wrapper in rounds[0].claims:
            claims = [r.claims[wrapper] for r in rounds]
            found[wrapper] = Bound(
                sum(c[0] for c in claims), sum(c[1] for c in claims), overhead, sum(c[2] for c in claims)
            )
        return found

    def measure_replays(self, baselines: Mapping[str, Callable[..., Any]]) -> None:
        """Warm batches of at least 20 ms of graph replays, both sides on the judge's clock, in turn."""
        plain = {side.name: side for side in self.sides if side.wrapper == "plain"}
        call_s = median(pooled(plain[CANDIDATE].rounds)) * 1e-3
        calls = max(1, min(50, int(1e-3 / call_s)))
        armed = self.child.arm(self.call, ("plain", "replay"), replay=calls)
        if armed.problems:
            self.skipped[f"{CANDIDATE}/replay"] = "; ".join(armed.problems.values())
            return
        if not self._computes("replay"):
            return

        def of_child(repeats: int) -> Sequence[float]:
            return [(self.child.replay(repeats) - self.latency_s) * 1e3 / (repeats * calls)]

        def of_judge(run: Callable[[], None]) -> Callable[[int], Sequence[float]]:
            def batch(repeats: int) -> Sequence[float]:
                begin = time.perf_counter()
                for _ in range(repeats):
                    run()
                self.timer.wait()
                return [(time.perf_counter() - begin) * 1e3 / (repeats * calls)]

            return batch

        found = [_Side(CANDIDATE, "replay", of_child, call_s)]
        args, kwargs = self.call.args, self.call.kwargs
        for name, fn in baselines.items():
            if name not in plain:
                continue
            try:
                run = replayed(lambda fn=fn: fn(*args, **kwargs), calls)  # type: ignore[misc]
            except RuntimeError as error:
                self.skipped[f"{name}/replay"] = str(error)[:500]
                continue
            found.append(_Side(name, "replay", of_judge(run), call_s))
        for side in found:
            once_s = side.batch(2)[0] * 1e-3 * calls
            side.call_s = max(1.0, math.ceil(BATCH_S / max(once_s, 1e-6)))  # from here on: repeats of a batch
        for _ in range(_REPLAY_ROUNDS):
            random.SystemRandom().shuffle(found)
            for side in found:
                side.rounds.append(tuple(side.batch(int(side.call_s))))
        self.sides += found


def _other_values(call: Call) -> Call:
    """The same shapes with other values: every tensor reversed, floats scaled by 3/4."""
    import torch
    from torch.utils import _pytree as pytree

    from kforge.task.call import clone_call

    other = clone_call(call)

    def change(tensor: Any) -> Any:
        values = tensor.flip(list(range(tensor.dim())))
        return tensor.copy_(values * 0.75 if tensor.is_floating_point() else values)

    pytree.tree_map_only(torch.Tensor, change, (other.args, other.kwargs))
    return other


def _agree(left: Any, right: Any) -> bool:
    """Equal trees, floats within 1 % of the largest value: enough to see whether a graph computes at all."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, shape = pytree.tree_flatten(left)
    others, other_shape = pytree.tree_flatten(right)
    if shape != other_shape:
        return False
    for a, b in zip(leaves, others, strict=True):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            if a != b:
                return False
        elif a.shape != b.shape or a.dtype != b.dtype:
            return False
        elif a.is_floating_point() and a.numel():
            scale = float(a.double().abs().nan_to_num(posinf=0.0).max())
            if not torch.allclose(a.double(), b.double(), rtol=0.01, atol=0.01 * scale, equal_nan=True):
                return False
        elif not torch.equal(a, b):
            return False
    return True


def _iterations(seconds_each: float) -> int:
    """Calls of a batch of at least 20 ms, within reason; one where a single call takes a tenth of a second."""
    return max(1 if seconds_each > 0.1 else 3, min(_MAX_ITERATIONS, math.ceil(BATCH_S / max(seconds_each, 1e-7))))


def measure_noise(
    zygote: Zygote, folder: Path, device: str, *, call_ms: float = 0.05, budget_s: float = 0.6, rounds: int = 8
) -> float:
    """The A/A noise floor: one and the same operation in judge and child, under the arrangement of time_against.

    call_ms: about how long one call should take (the noise of short calls is larger). Measure once per GPU and size.
    """
    import torch

    from kforge.task.call import Call
    from kforge.worker import Limits

    with zygote.fork(folder, device, "run", Limits(call_s=60.0)) as child:
        child.load(_aa_candidate(), Call(), {}, timer=True)
        # a pass over n floats moves 8 n bytes; 3 TB/s on a large GPU, 5 GB/s on a slow host
        rate = 3e9 if device != "cpu" else 5e6
        size = max(1024, int(call_ms * rate / 8))
        call = Call((torch.rand(size, device=device),))
        timing = time_against(child, call, {"same": _aa_operation}, budget_s=budget_s, rounds=rounds)
    ours, theirs = timing.best(CANDIDATE), timing.best("same")
    if ours is None or theirs is None:
        raise KforgeError(f"the A/A run measured nothing: {timing.skipped}")
    return noise_floor(theirs.rounds, ours.rounds)


def _aa_operation(x: Any) -> Any:
    return x * 1.5


def _aa_candidate() -> Candidate:
    from kforge.kernel.candidate import Candidate

    source = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 1.5\n"
    return Candidate("same_kforge.py", {"same_kforge.py": source})
