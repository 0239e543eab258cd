"""From samples to a verdict: the interval of a ratio of times, the noise floor, and what they say. Pure functions.

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
RESAMPLES = 2000
_Z = 1.959964  # the normal quantile of LEVEL
_TINY = 1e-9  # milliseconds: a claim of zero has a logarithm too
_LOW, _NEAR = 0.1, 0.97  # the quantile that stands for a round, and how far under the median it may lie
MIN_NOISE = 0.01  # less is no difference; half of the 2 % that must be seen, which balances both errors
MAX_NOISE = 0.05  # a machine noisier than this can tell gains, but not that two things are the same
_NOISE_SIGMAS = 3.0  # of the middle A/A pair: two standard deviations where pairs differ by a normal deviate


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


def undisturbed(samples: Sequence[float]) -> float:
    """What a round's calls take where nothing disturbs them: the lower decile, at most 3 % under the median.

    A late host or a busy machine only ever adds time, in some processes to most samples: between two processes that do
    the same (60 us to 1 ms on an H200) medians differ by 0.5 to 0.9 %, lower deciles by 0.2 % (docs/experiments.md).
    The limit keeps calls that are fast now and then from standing for all.
    """
    ordered = sorted(samples)
    return max(ordered[int(_LOW * (len(ordered) - 1))], _NEAR * median(ordered))


def ratio_of_rounds(baseline: Rounds, candidate: Rounds, *, seed: int = 0, resamples: int = RESAMPLES) -> Ratio:
    """Ratio of a typical round's undisturbed times, paired by round, and its bootstrap interval over rounds.

    A round's value is the logarithm of baseline / candidate; the estimate is the mean of the middle half of them, so
    that drift moves both sides together and a disturbed round weighs nothing. Rounds are resampled
    (the clusters: Davison & Hinkley 1997, section 3.8) and the interval is stretched for their small number (Hesterberg
    2015, section 4.4); a single round resamples its samples. ValueError unless both sides have the same number of
    rounds, at least one, none of them empty.
    """
    import numpy as np

    if len(baseline) != len(candidate) or not baseline or not all(map(len, (*baseline, *candidate))):
        raise ValueError("both sides need the same number of rounds, and samples in each")
    rng = np.random.default_rng(seed)
    n = len(baseline)
    sides = [[math.log(max(undisturbed(samples), _TINY)) for samples in side] for side in (baseline, candidate)]
    logs = np.array(sides[0]) - np.array(sides[1])
    point = float(_middle(logs[None, :])[0])
    if n > 1:
        drawn = _middle(logs[rng.integers(n, size=(resamples, n))])
        stretch = math.sqrt(n / (n - 1)) * _t_quantile(n - 1) / _Z
    else:
        single = [np.maximum(np.asarray(side[0]), _TINY) for side in (baseline, candidate)]
        drawn_from = [s[rng.integers(len(s), size=(resamples, len(s)))] for s in single]
        picked = [np.array([undisturbed(row) for row in rows]) for rows in drawn_from]
        drawn, stretch = np.log(picked[0] / picked[1]), 1.0
    tail = (1 - LEVEL) / 2
    low, high = (float(q) for q in np.quantile(drawn, (tail, 1 - tail)))
    reach = min(low - point, 0.0) * stretch, max(high - point, 0.0) * stretch
    return Ratio(math.exp(point), math.exp(point + reach[0]), math.exp(point + reach[1]))


def _middle(rows: Any) -> Any:
    """Mean of the middle half of each row (all of a row of three or fewer)."""
    import numpy as np

    n = rows.shape[1]
    return np.sort(rows, axis=1)[:, n // 4 : n - n // 4].mean(axis=1)


def _t_quantile(freedom: int) -> float:
    """Student's t at LEVEL, two-sided, by the Cornish-Fisher expansion (3 % low at two degrees of freedom)."""
    z, v = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def noise_floor(pairs: Sequence[float]) -> float:
    """Relative noise of two processes that do the same, from the ratios of A/A pairs, a fresh process each.

    What differs between processes (where memory lies, how the scheduler treats them) is no spread of samples: no number
    of rounds shows it. The middle deviation is taken, so that one disturbed pair does not blunt all verdicts.
    """
    if not pairs:
        raise ValueError("the noise of no pairs")
    return max(MIN_NOISE, _NOISE_SIGMAS * median([abs(math.log(ratio)) for ratio in pairs]))


def verdict(ratio: Ratio, noise: float) -> str:
    """ "faster" or "slower" when the interval lies outside 1 +- noise, "same" when inside, else "unclear".

    A floor above MAX_NOISE leaves no room for "same".
    """
    if not math.isfinite(ratio.low + ratio.high) or noise < 0:
        return "unclear"
    if ratio.low > 1 + noise:
        return "faster"
    if ratio.high < 1 - noise:
        return "slower"
    if noise <= MAX_NOISE and ratio.low >= 1 - noise and ratio.high <= 1 + noise:
        return "same"
    return "unclear"


def geometric_mean(ratios: Sequence[float]) -> float:
    """exp of the mean logarithm; ValueError when empty or not positive."""
    if not ratios or min(ratios) <= 0:
        raise ValueError("a geometric mean needs positive values")
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
