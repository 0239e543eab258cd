"""What a timing found, as data: samples of each side, the bound that the judge's clock puts on them, the ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kforge.profiling.gpu_state import GpuState
from kforge.profiling.statistics import Ratio, median, ratio_of_medians

CANDIDATE = "candidate"
AGREEMENT = 0.03  # the child's figures against the judge's clock (CONTRACTS 5)
LIE = 0.15  # calls that take this much longer than claimed, by the judge's clock, are no noise of a busy host
TRUSTED = 0.05  # a bound on the kernel above this hands the verdict to the replay batch


@dataclass(frozen=True)
class Samples:
    """Milliseconds per call of one side under one wrapper, all rounds in order (the fields of report.Samples)."""

    name: str  # candidate | eager | compile_default | ...
    wrapper: str  # plain | graph | replay
    ms: tuple[float, ...]
    rounds: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    @property
    def median(self) -> float:
        return median(self.ms)


@dataclass(frozen=True)
class Bound:
    """The child's claim against the judge's clock, over all batches of a wrapper.

    wall_ms: the judge's clock less the latency of messages; claimed_ms: sum of the child's samples; overhead_ms: flush,
    restoring and launching per call, calibrated by the judge; difference: (wall - claimed - calls x overhead) / wall;
    kernel: what AGREEMENT leaves open on one call, relative to its median.
    """

    wall_ms: float
    claimed_ms: float
    overhead_ms: float
    calls: int

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

    def __str__(self) -> str:
        state = "agree" if self.accepted else "DISAGREE"
        return f"clocks {state} ({self.difference:+.1%}); kernel bounded to {self.kernel:.1%}"


@dataclass(frozen=True)
class Timing:
    """Everything measured. bounds: per wrapper of the candidate. skipped: sides that could not be timed, with why."""

    samples: tuple[Samples, ...]
    bounds: dict[str, Bound]
    skipped: dict[str, str]
    gpu: GpuState
    seconds: float

    def of(self, name: str, wrapper: str = "plain") -> Samples | None:
        """One side's samples, or None when it was not timed."""
        return next((s for s in self.samples if (s.name, s.wrapper) == (name, wrapper)), None)

    @property
    def basis(self) -> str:
        """What a verdict rests on: "events" (cold L2), or "replay" (warm) where the bound on events is too loose."""
        bound = self.bounds.get("plain")
        loose = bound is not None and bound.kernel > TRUSTED
        return "replay" if loose and self.of(CANDIDATE, "replay") else "events"

    def best(self, name: str) -> Samples | None:
        """The fastest wrapper of a side on the basis of the verdict."""
        wrappers = ("replay",) if self.basis == "replay" else ("plain", "graph")
        found = [s for wrapper in wrappers if (s := self.of(name, wrapper)) is not None]
        return min(found, key=lambda s: s.median, default=None)

    def ratio(self, baseline: str) -> Ratio | None:
        """Baseline over candidate, best wrapper over best wrapper; None when one was not timed.

        Where the judge's clock bounds the events too loosely and no replay could be made, the interval reaches down to
        what the bound allows: such a figure is never FASTER by less than the judge could see.
        """
        ours, theirs = self.best(CANDIDATE), self.best(baseline)
        if ours is None or theirs is None:
            return None
        found = ratio_of_medians(theirs.rounds, ours.rounds)
        bound = self.bounds.get(ours.wrapper)
        if bound is None or bound.kernel <= TRUSTED:
            return found
        return Ratio(found.ratio, found.low / (1 + bound.kernel), found.high)

    @property
    def believed(self) -> bool:
        """Whether the judge's clock bears the candidate's figures out, on every wrapper.

        Where the verdict rests on replays, which the judge times itself, only a lie counts: a call of microseconds is
        lost in the loop around it.
        """
        if self.basis == "replay":
            return not self.lying
        return all(bound.accepted for bound in self.bounds.values())

    @property
    def lying(self) -> bool:
        """Whether a wrapper's calls take far longer by the judge's clock than the child claims."""
        return any(bound.difference > LIE for bound in self.bounds.values())
