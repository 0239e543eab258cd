"""What a timing found, as data: samples of each side, the bound that the judge's clock puts on them, the ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kforge.profiling.gpu_state import GpuState
from kforge.profiling.statistics import Ratio, median, ratio_of_rounds

CANDIDATE = "candidate"
AGREEMENT = 0.03  # the child's figures against the judge's clock (CONTRACTS 5)
LIE = 0.15  # calls that take this much longer than claimed, by the judge's clock, are no noise of a busy host
UNEVEN = 1.25  # of the judge's own overhead between rounds: more is somebody else's work on the GPU
IMPOSSIBLE_MS = 2e-4  # two events around nothing are further apart
EMPTY = 1.15  # of what two events around nothing read: a call that takes no longer did nothing between them
TRUSTED = 0.05  # a bound on the kernel above this hands the verdict to the replay batch


@dataclass(frozen=True)
class Samples:
    """Milliseconds per call of one side under one wrapper, all rounds in order (the fields of report.Samples)."""

    name: str  # candidate | eager | compile_default | ...
    wrapper: str  # plain | graph | replay | warm | amortised
    ms: tuple[float, ...]
    rounds: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    @property
    def median(self) -> float:
        return median(self.ms)


@dataclass(frozen=True)
class Bound:
    """The child's claim against the judge's clock, over all batches of a wrapper.

    wall_ms: the judge's clock less the latency of messages; claimed_ms: sum of the child's samples; overhead_ms: flush,
    restoring and launching per call, calibrated by the judge (comparison.py); slack_ms: by how much that may be less;
    difference: (wall - claimed - calls x overhead) / wall; kernel: what AGREEMENT leaves open on one call, relative to
    its median; reach: what AGREEMENT and slack leave open together.
    """

    wall_ms: float
    claimed_ms: float
    overhead_ms: float
    calls: int
    slack_ms: float = 0.0

    @property
    def difference(self) -> float:
        return (self.wall_ms - self.claimed_ms - self.calls * self.overhead_ms) / self.wall_ms

    @property
    def accepted(self) -> bool:
        return abs(self.difference) <= AGREEMENT

    @property
    def kernel(self) -> float:
        if self.claimed_ms <= 0:
            return math.inf
        return AGREEMENT * (self.calls * self.overhead_ms + self.claimed_ms) / self.claimed_ms

    @property
    def reach(self) -> float:
        return self.kernel + self.calls * self.slack_ms / self.claimed_ms if self.claimed_ms > 0 else math.inf

    def __str__(self) -> str:
        state = "agree" if self.accepted else "DISAGREE"
        return f"clocks {state} ({self.difference:+.1%}); kernel bounded to {self.kernel:.1%}"


@dataclass(frozen=True)
class Timing:
    """Everything measured. bounds: per wrapper of the candidate. skipped: sides that could not be timed, with why.

    each: the bounds of every round. overheads_ms: what a baseline's call cost the judge beside itself, by round (the
    least of them). empty_ms: what two events around nothing read, 0 where there are none. stages: seconds by what they
    went into. call_us: host time until a call returns, by side. first_s: the candidate's first call.
    """

    samples: tuple[Samples, ...]
    bounds: dict[str, Bound]
    skipped: dict[str, str]
    gpu: GpuState
    seconds: float
    each: tuple[dict[str, Bound], ...] = ()
    overheads_ms: tuple[float, ...] = ()
    stages: dict[str, float] = field(default_factory=dict)
    call_us: dict[str, float] = field(default_factory=dict)
    first_s: float = 0.0
    empty_ms: float = 0.0

    def of(self, name: str, wrapper: str = "plain") -> Samples | None:
        """One side's samples, or None when it was not timed."""
        return next((s for s in self.samples if (s.name, s.wrapper) == (name, wrapper)), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The sides that were timed, the candidate among them."""
        return tuple(dict.fromkeys(s.name for s in self.samples))

    @property
    def basis(self) -> str:
        """What a verdict rests on: "events" (cold L2), or "replay" (warm) where the bound on events is too loose."""
        return "replay" if self.of(CANDIDATE, "replay") else "events"

    def best(self, name: str) -> Samples | None:
        """The fastest wrapper of a side on the basis of the verdict."""
        wrappers = ("replay",) if self.basis == "replay" else ("plain", "graph")
        found = [s for wrapper in wrappers if (s := self.of(name, wrapper)) is not None]
        return min(found, key=lambda s: s.median, default=None)

    def ratio(self, baseline: str) -> Ratio | None:
        """Baseline over candidate, best wrapper over best wrapper; None when one was not timed.

        Where the judge's clock bounds the events too loosely and no replay could be made, the interval reaches down to
        what clock and overhead allow: such a figure is never FASTER by less than the judge could see.
        """
        ours, theirs = self.best(CANDIDATE), self.best(baseline)
        if ours is None or theirs is None:
            return None
        found = ratio_of_rounds(theirs.rounds, ours.rounds)
        bound = self.bounds.get(ours.wrapper)
        if bound is None or bound.kernel <= TRUSTED:
            return found
        return Ratio(found.ratio, found.low / (1 + bound.reach), found.high)

    @property
    def believed(self) -> bool:
        """Whether the judge's clock bears out the candidate's figures that the verdict rests on."""
        if self.basis == "replay":  # a single short call is lost in the loop around it: there only a lie counts
            return not self.lying and "replay" in self.bounds and self.bounds["replay"].accepted
        return not self.unseen and all(bound.accepted for bound in self.bounds.values())

    @property
    def unseen(self) -> bool:
        """Whether the events enclose no work of the candidate's: what it does runs elsewhere than where it is timed."""
        sides = [s for s in self.samples if s.name == CANDIDATE and s.wrapper in ("plain", "graph")]
        return any(side.median <= EMPTY * self.empty_ms for side in sides)

    @property
    def disturbed(self) -> str:
        """What else used the GPU, as far as it can be seen, in words; the judge's own calls show it too."""
        if self.gpu.others:
            return f"shared with {', '.join(self.gpu.others)}"
        low, high = min(self.overheads_ms, default=0.0), max(self.overheads_ms, default=0.0)
        return f"the judge's own calls cost {low:.3f} to {high:.3f} ms beside themselves" if high > UNEVEN * low else ""

    @property
    def lying(self) -> bool:
        """Whether a wrapper's calls take far longer than claimed in every round, or no time at all.

        What others do on the GPU makes calls longer as well: while they are there nobody is called a liar.
        """
        if any(s.name == CANDIDATE and s.median < IMPOSSIBLE_MS for s in self.samples):
            return True
        rounds = self.each or (self.bounds,)
        by_wrapper = ([found[w] for found in rounds if w in found] for w in self.bounds)
        return not self.disturbed and any(all(b.difference > LIE for b in found) for found in by_wrapper)
