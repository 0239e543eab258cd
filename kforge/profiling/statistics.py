"""From samples to a verdict: the interval of a ratio of medians, the noise floor, and what they say. Pure functions.

Samples come in rounds (one batch of each side per round, close in time), so that a drift of the clocks moves both sides
of a round together and is not taken for precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Rounds = Sequence[Sequence[float]]

LEVEL = 0.95
RESAMPLES = 1000
_KEEP = 64  # samples of a round that enter the bootstrap: more do not move its median
MIN_NOISE = 0.003  # below this no arrangement of two processes was seen to be reproducible
NOISE_MARGIN = 1.5  # an A/A interval as wide as the one that set the floor must still lie inside it


@dataclass(frozen=True)
class Ratio:
    """Baseline time over candidate time (above 1: the candidate is faster) with its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def ci95(self) -> tuple[float, float]:
        return self.low, self.high


def median(values: Sequence[float]) -> float:
    """Middle value, the mean of the two middle ones for even counts. ValueError when empty."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median of nothing")
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def pooled(rounds: Rounds) -> list[float]:
    """All samples of all rounds."""
    return [sample for samples in rounds for sample in samples]


def ratio_of_medians(baseline: Rounds, candidate: Rounds, *, seed: int = 0, resamples: int = RESAMPLES) -> Ratio:
    """Ratio of the pooled medians and its two-level bootstrap interval (Davison & Hinkley 1997, section 3.8).

    Rounds are drawn with replacement, the same for both sides, then samples within each. ValueError unless both sides
    have the same number of rounds, at least one, none of them empty.
    """
    import numpy as np

    if len(baseline) != len(candidate) or not baseline or not all(map(len, (*baseline, *candidate))):
        raise ValueError("both sides need the same number of rounds, and samples in each")
    point = median(pooled(baseline)) / median(pooled(candidate))
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(baseline), size=(resamples, len(baseline)))
    medians = [_resampled_medians(side, chosen, rng) for side in (baseline, candidate)]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(medians[0] / medians[1], (tail, 1 - tail))
    return Ratio(point, float(min(low, point)), float(max(high, point)))


def _resampled_medians(rounds: Rounds, chosen: Any, rng: Any) -> Any:
    """Median of each resample: `chosen` is (resamples, rounds) of round numbers."""
    import numpy as np

    width = min(_KEEP, max(map(len, rounds)))
    table = np.array([_spread(samples, width) for samples in rounds])
    picks = rng.integers(width, size=(*chosen.shape, width))
    drawn = table[chosen[:, :, None], picks]
    return np.median(drawn.reshape(len(chosen), -1), axis=1)


def _spread(samples: Sequence[float], width: int) -> list[float]:
    """`width` order statistics of a round, evenly spaced: the round's distribution at a common length."""
    ordered = sorted(samples)
    n = len(ordered)
    return [ordered[min(n - 1, int((i + 0.5) * n / width))] for i in range(width)]


def noise_floor(baseline: Rounds, candidate: Rounds) -> float:
    """Relative noise of an A/A run: how far from 1 the interval of its ratio reaches, with a margin."""
    found = ratio_of_medians(baseline, candidate)
    return max(MIN_NOISE, NOISE_MARGIN * max(found.high - 1, 1 - found.low))


def verdict(ratio: Ratio, noise: float) -> str:
    """ "faster" or "slower" when the interval lies outside 1 +- noise, "same" when inside, else "unclear"."""
    if not math.isfinite(ratio.low + ratio.high) or noise < 0:
        return "unclear"
    if ratio.low > 1 + noise:
        return "faster"
    if ratio.high < 1 - noise:
        return "slower"
    if ratio.low >= 1 - noise and ratio.high <= 1 + noise:
        return "same"
    return "unclear"


def geometric_mean(ratios: Sequence[float]) -> float:
    """exp of the mean logarithm; ValueError when empty or not positive."""
    if not ratios or min(ratios) <= 0:
        raise ValueError("a geometric mean needs positive values")
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
