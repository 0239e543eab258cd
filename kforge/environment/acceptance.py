"""The acceptance rule for floating outputs (CONTRACTS 4): as accurate as the user's own baseline, against fp64.

Per output and distribution: (a) RMS error pooled over draws, (b) every element, (c) tiles of 64 rows or columns, with
NaN and infinity masks before all of them. Outputs that are not floating are judged in `discrete`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.environment.bias import Bias

if TYPE_CHECKING:
    import torch

    from kforge.task.tolerance import Tolerance

TILE = 64
SMALL = 1024  # outputs below this many elements are pooled over at least MIN_DRAWS draws
MIN_DRAWS = 32
FULL_DRAWS = 512  # with 32 draws a true ratio of 1.25 crosses the 2.0 bound once in 200: failures wait for this many
ENOUGH = 256  # effective errors from which the bound on their RMS ratio needs no slack
DOMINATED = 16  # below so many, a few elements outweigh the others and the baseline's luck on them is its whole error
LONE = 4  # units in the last place that such an element may be off, beside the 4x: with 1, two equals differ too often
GROSS = 8.0  # beyond this ratio no true ratio of 1 has ever been seen at 32 draws, so nothing is gained by waiting


def halves() -> tuple[torch.dtype, ...]:
    """The types whose rounding alone may decide what an answer is."""
    import torch

    return (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Limits:
    """Factors over the baseline: pooled RMS (a) and single elements (b). label names the class that is printed."""

    rms: float
    max: float
    label: str

    def times(self, factor: float) -> Limits:
        """Both bounds wider by this factor."""
        return self if factor == 1.0 else Limits(self.rms * factor, self.max * factor, self.label)


def limits_for(dtype: torch.dtype, tolerance: Tolerance) -> Limits:
    """2.0x for fp32 and fp64, 1.25x for half types; TOLERANCE may only widen them, in the open."""
    return Limits(tolerance.rms_factor(dtype), tolerance.max_factor(), tolerance.label)


def ulp(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One unit in the last place of each value (fp64 in, fp64 out) in `dtype`, subnormals included."""
    import torch

    digits = 1 - round(math.log2(torch.finfo(dtype).eps))  # significand bits, the hidden one included: 24 for fp32
    lowest = round(math.log2(torch.finfo(dtype).tiny)) - digits + 1
    exponent = (torch.frexp(value.abs()).exponent - digits).clamp_min(max(lowest, -1022))
    return ((exponent.long() + 1023) << 52).view(torch.float64)  # the bits of 2^exponent: exact, and no pow()


def mask_mismatch(candidate: torch.Tensor, baseline: torch.Tensor, expected: torch.Tensor) -> str:
    """In words: the first place where the candidate is NaN or infinite and should not be, or the reverse; else "".

    Where the baseline itself differs from fp64 (its own overflow), either is accepted.
    """
    import torch

    rounded = expected.to(baseline.dtype)
    if all(bool(torch.isfinite(x).all()) for x in (candidate, baseline, rounded)):
        return ""
    kinds = [_kind(x) for x in (candidate, baseline, rounded)]
    bad = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2])
    if not bool(bad.any()):
        return ""
    place = tuple(torch.nonzero(bad)[0].tolist())
    got, want = candidate[place].item(), baseline[place].item()
    return f"{int(bad.sum())} of {bad.numel()} elements: {got:g} at {list(place)} where the reference gives {want:g}"


def _kind(x: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    return x.isnan().int() + 2 * x.isposinf().int() + 3 * x.isneginf().int()


@dataclass(frozen=True)
class Draw:
    """Errors of one draw of one output, absolute, against fp64."""

    candidate_rms: float
    baseline_rms: float
    candidate_max: float
    baseline_max: float


@dataclass(frozen=True)
class Outcome:
    """passed None: the draws so far do not decide; more are needed."""

    passed: bool | None
    detail: str = ""


class Pool:
    """Error statistics of one output under one distribution, pooled over draws.

    averages False: data of so few values that errors repeat instead of averaging out (zeros and ones: the softmax of
    such a row holds one exponential, whose rounding is that of every element; one row, expanded: each of its errors
    stands in every row). There RMS counts only where the baseline is exact, and (b) is the rule, as for `lone` errors.
    """

    def __init__(self, dtype: torch.dtype, limits: Limits, averages: bool = True) -> None:
        self.dtype, self.limits, self.averages = dtype, limits, averages
        self.draws = self.count = self.rows = 0
        self.baseline_draws = self.baseline_count = 0
        self.candidate_sq = self.baseline_sq = self.beyond_sq = 0.0
        self.candidate_4th = self.baseline_4th = 0.0
        self.candidate_max = self.baseline_max = 0.0
        self.exact_sum = self.exact_sq = 0.0  # of the right values
        self.excess = self.lone_excess = 0.0  # largest error after 1 (after LONE) units in the last place are taken off
        self.place = ""
        self.bias = Bias()  # of half types
        self.signed = self.most = 0.0  # of half types: sum and largest size of the errors in units in the last place
        self._tiles: dict[str, list[torch.Tensor]] = {}
        self._masks = ""

    def copied(self) -> Pool:
        """As it is now: what is added to this one later is not in it."""
        other = copy.copy(self)
        other.bias, other._tiles = copy.deepcopy(self.bias), dict(self._tiles)  # tensors in it are never changed
        return other

    def add_baseline(self, baseline: torch.Tensor, expected: torch.Tensor) -> None:
        """One draw of the baseline alone: steadies the bounds of a small output before a candidate meets them."""
        error = _error(baseline, expected)
        self.baseline_draws += 1
        self.baseline_count += error.numel()
        self.baseline_sq += float((error * error).sum())
        self.baseline_4th += float(error.pow(4).sum())
        self.baseline_max = max(self.baseline_max, _largest(error))

    def add(self, candidate: torch.Tensor, baseline: torch.Tensor, expected: torch.Tensor) -> Draw:
        """One draw. All of one shape; candidate and baseline in the output's dtype, expected in fp64."""
        self._masks = self._masks or mask_mismatch(candidate, baseline, expected)
        first = _error(baseline, expected)
        second = _error(candidate, expected, also=baseline)
        unit = ulp(expected.nan_to_num(0.0, 0.0, 0.0), self.dtype)
        beyond = (second - unit).clamp_min(0.0)
        if self.dtype in halves():
            units = ((candidate.double() - expected) / unit).nan_to_num(0.0, 0.0, 0.0)
            self.signed += float(units.sum())
            self.bias.add(units, ((baseline.double() - expected) / unit).nan_to_num(0.0, 0.0, 0.0), expected)
            self.most = max(self.most, _largest(units.abs()))
        squares = [e * e for e in (second, first, beyond)]
        sums = [float(s.sum()) for s in squares]
        self.draws += 1
        values = expected.nan_to_num(0.0, 0.0, 0.0)
        self.exact_sum += float(values.sum())
        self.exact_sq += float(values.square().sum())
        self.count += second.numel()
        self.baseline_draws += 1
        self.baseline_count += first.numel()
        self.candidate_sq += sums[0]
        self.baseline_sq += sums[1]
        self.beyond_sq += sums[2]
        fourths = [s * s for s in squares[:2]]
        self.candidate_4th += float(fourths[0].sum())
        self.baseline_4th += float(fourths[1].sum())
        self.candidate_max = max(self.candidate_max, _largest(second))
        self.baseline_max = max(self.baseline_max, _largest(first))
        self.lone_excess = max(self.lone_excess, _largest(second - LONE * unit))
        if _largest(beyond) > self.excess:
            self.excess, self.place = _largest(beyond), _describe(beyond, candidate, expected)
        self._add_tiles([*squares, *fourths])
        n = max(1, second.numel())
        return Draw(math.sqrt(sums[0] / n), math.sqrt(sums[1] / n), _largest(second), _largest(first))

    @property
    def masks_differ(self) -> bool:
        """Whether a NaN or an infinity is where none should be, or is missing."""
        return bool(self._masks)

    @property
    def candidate_rms(self) -> float:
        return math.sqrt(self.candidate_sq / self.count) if self.count else 0.0

    @property
    def baseline_rms(self) -> float:
        return math.sqrt(self.baseline_sq / self.baseline_count) if self.baseline_count else 0.0

    @property
    def largest_ulp(self) -> float | None:
        """Of half outputs, the candidate's largest error in units in the last place of the right value."""
        return self.most if self.dtype in halves() and self.count else None

    @property
    def mean_ulp(self) -> float | None:
        """Of half outputs, the signed mean error in units in the last place: far from 0, the rounding is biased."""
        return self.signed / self.count if self.dtype in halves() and self.count else None

    @property
    def ratio(self) -> float | None:
        """Candidate over baseline RMS; None where the baseline is exact."""
        return self.candidate_rms / self.baseline_rms if self.baseline_rms else None

    @property
    def allowed(self) -> float:
        """The bound on `ratio`; small outputs wait for draws instead of taking slack."""
        return self.limits.rms * (1.0 if self.small else _slack(self.effective))

    @property
    def beyond(self) -> bool:
        """Whether the RMS error so far is beyond its bound, decided or not."""
        return self.told and self.ratio is not None and self.ratio > self.allowed

    @property
    def effective(self) -> float:
        """How many errors of equal size would scatter as much: (sum e^2)^2 / sum e^4, the smaller of both sides.

        A third of the elements for normal errors; 1 where one element (an outlier) outweighs all others.
        """
        sides = ((self.candidate_sq, self.candidate_4th), (self.baseline_sq, self.baseline_4th))
        return min(square * square / fourth if fourth > 0 else 1.0 for square, fourth in sides)

    @property
    def told(self) -> bool:
        """Whether an RMS over this data compares precision: no repeated errors, no few that outweigh all others."""
        return self.averages and (self.small or self.baseline_sq == 0.0 or self.effective >= DOMINATED)

    @property
    def vain(self) -> bool:
        """Whether the rule on RMS errors would pass one constant for all answers: the baseline's error is as large as
        what the right values differ by."""
        if not self.count or self.baseline_sq == 0.0:
            return False
        variance = self.exact_sq / self.count - (self.exact_sum / self.count) ** 2
        return (self.limits.rms * self.baseline_rms) ** 2 >= variance

    @property
    def lone(self) -> bool:
        """Whether the largest error is that of a few independent ones, and so as much luck as precision."""
        return not self.averages or self.effective < DOMINATED

    @property
    def small(self) -> bool:
        return self.draws > 0 and self.count < SMALL * self.draws

    def beyond_bound(self, candidate: torch.Tensor, baseline: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Where an answer breaks (b): bool, of the output's shape."""
        unit = ulp(expected.nan_to_num(0.0, 0.0, 0.0), self.dtype)
        error = _error(candidate, expected, also=baseline)
        return error - (LONE if self.lone else 1) * unit > self.limits.max * self.baseline_max

    def judge(self) -> Outcome:
        """Masks, then (b), (a), (c). None while a small output still lacks draws."""
        if self._masks:
            return Outcome(False, f"NaN or infinity mask differs: {self._masks}")
        bound = self.limits.max * self.baseline_max
        if (self.lone_excess if self.lone else self.excess) > bound:
            units = f"{LONE} units" if self.lone else "one unit"
            return Outcome(
                False,
                f"element {self.place}; allowed {self.limits.max:g}x the baseline's largest error "
                f"{self.baseline_max:.3g} plus {units} in the last place",
            )
        pooled = self._judge_rms()
        if pooled.passed is not True or not self.averages:
            return pooled
        return self._judge_tiles()

    def _judge_rms(self) -> Outcome:
        if self.baseline_sq == 0.0:
            if self.beyond_sq > 0.0:
                return Outcome(False, f"the baseline is exact, the candidate is not: {self.place}")
            return Outcome(True)
        if not self.told:
            return Outcome(True)  # (b) alone says something here
        ratio = self.ratio or 0.0
        limit = self.allowed
        words = (
            f"RMS error {self.candidate_rms:.3g} is {ratio:.3g}x the baseline's {self.baseline_rms:.3g} "
            f"(limit {limit:.3g}x, {self.draws} draws)"
        )
        if ratio <= limit:
            return Outcome(None if self.small and self.draws < MIN_DRAWS else True, words)
        if self.small:
            few = self.draws < (FULL_DRAWS if ratio < GROSS else MIN_DRAWS)
        else:  # few rows that share a sum or a maximum each are as few independent errors
            few = self.rows < TILE and self.draws < MIN_DRAWS and ratio < GROSS
        return Outcome(None if few else False, words)

    def _judge_tiles(self) -> Outcome:
        """(c), with the slack that the number of independent rows in a tile asks for.

        Elements of a row share its maximum, sum or mean, so a tile holds as many independent errors as rows: the
        relative spread of a ratio of two RMS values over n of them is about 1/sqrt(n), and four of those are allowed.
        A tile of fewer than 64 rows is compared with the larger of its own and the whole output's baseline.
        """
        for axis, (candidate, baseline, beyond, candidate_4th, baseline_4th, rows) in self._tiles.items():
            sides = ((candidate, candidate_4th), (baseline, baseline_4th))
            spread = [(sq * sq / fourth.clamp_min(1e-300)).nan_to_num(1.0).clamp_min(1.0) for sq, fourth in sides]
            independent = rows.minimum(spread[0]).minimum(spread[1])
            factor = self.limits.rms * (1.0 + 4.0 / independent.sqrt())
            floor = baseline.mean() * (independent < 2 * TILE)
            limit = factor * factor * baseline.maximum(floor)
            told = spread[0].minimum(spread[1]) >= DOMINATED  # else one element is the tile, and (b) has judged it
            bad = (candidate > limit) & (beyond > 0) & told
            if bool(bad.any()):
                tile = int(bad.nonzero()[0])
                over = math.sqrt(float(candidate[tile]) / max(float(baseline[tile]), 1e-300))
                return Outcome(
                    False,
                    f"{axis} {tile * TILE} to {tile * TILE + TILE - 1}: RMS error {over:.3g}x the baseline's there "
                    f"(limit {float(factor[tile]):.3g}x), as a wrong tail gives",
                )
        return Outcome(True)

    def _add_tiles(self, squares: list[torch.Tensor]) -> None:
        """Sums of squares per tile of 64 rows and per tile of 64 columns (last dimension)."""
        import torch

        if squares[0].dim() == 0 or squares[0].numel() == 0:
            return
        cols = squares[0].shape[-1]
        flat = [s.reshape(-1, cols) for s in squares]
        rows = flat[0].shape[0]
        self.rows += rows
        parts = {"columns": [_tile_sums(s.sum(0)) for s in flat]}
        parts["columns"].append(torch.full_like(parts["columns"][0], rows))
        if rows > 1:
            parts["rows"] = [_tile_sums(s.sum(1)) for s in flat]
            parts["rows"].append(_tile_sums(flat[0].new_ones(rows)))
        for axis, sums in parts.items():
            old = self._tiles.get(axis)
            self._tiles[axis] = [a + b for a, b in zip(old, sums, strict=True)] if old else sums


def _slack(effective: float) -> float:
    """What few effective errors add to the bound on a ratio of RMS values: four times its spread, 1/sqrt(n)."""
    return 1.0 if effective >= ENOUGH else 1.0 + 4.0 / math.sqrt(max(1.0, effective))


def nu_bound(expected: torch.Tensor, terms: int) -> torch.Tensor:
    """A stand-in baseline for fp64 outputs: expected moved by n*u of its RMS, n the terms of the longest sum."""
    scale = float(expected.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()) if expected.numel() else 0.0
    return expected + max(1, terms) * 2.0**-53 * scale


def _error(value: torch.Tensor, expected: torch.Tensor, also: torch.Tensor | None = None) -> torch.Tensor:
    """|value - expected| in fp64, 0 where any of them is not finite (the masks are judged apart)."""
    import torch

    error = (value.double() - expected).abs()
    if also is not None and not bool(torch.isfinite(also).all()):
        error = torch.where(torch.isfinite(also), error, torch.zeros((), dtype=error.dtype, device=error.device))
    return error.nan_to_num(0.0, 0.0, 0.0)


def _largest(x: torch.Tensor) -> float:
    return float(x.max()) if x.numel() else 0.0


def _describe(beyond: torch.Tensor, candidate: torch.Tensor, expected: torch.Tensor) -> str:
    import torch

    place = tuple(int(i) for i in torch.unravel_index(beyond.argmax(), beyond.shape))
    return f"{list(place)} is {candidate[place].item():.9g}, expected {expected[place].item():.9g}"


def _tile_sums(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import pad

    return pad(x, (0, -x.numel() % TILE)).view(-1, TILE).sum(1)
