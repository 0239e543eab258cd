"""The acceptance rule on synthetic errors: an equally accurate candidate never fails, a worse one always does."""

from __future__ import annotations

import pytest
import torch

from kforge.environment.acceptance import Limits, Pool, limits_for, mask_mismatch, nu_bound, ulp
from kforge.task.tolerance import Tolerance

FP32 = Limits(2.0, 4.0, "rule")


def noisy(expected: torch.Tensor, scale: float, generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """expected with normal errors of this relative size, rounded to dtype."""
    noise = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    return (expected + noise * scale * expected.abs().mean()).to(dtype)


def pooled(
    ratio: float, shape: tuple[int, ...], draws: int, seed: int, dtype: torch.dtype = torch.float32, scale: float = 1e-6
) -> Pool:
    generator = torch.Generator().manual_seed(seed)
    pool = Pool(dtype, limits_for(dtype, Tolerance()))
    for _ in range(draws):
        expected = torch.randn(shape, generator=generator, dtype=torch.float64)
        baseline = noisy(expected, scale, generator, dtype)
        pool.add(noisy(expected, scale * ratio, generator, dtype), baseline, expected)
    return pool


def test_a_true_ratio_of_one_never_fails() -> None:
    """300 candidates exactly as accurate as the baseline, of all sizes: none is called wrong."""
    shapes = [(4, 40), (64,), (33, 129), (70, 200), (3, 7, 65), (2000,)]
    verdicts = [
        pooled(1.0, shapes[seed % 6], draws=(32 if seed % 6 < 2 else 5), seed=seed).judge() for seed in range(300)
    ]
    assert [v for v in verdicts if v.passed is not True] == []


@pytest.mark.parametrize("shape", [(64, 64), (40, 300)])
def test_four_times_the_error_fails(shape: tuple[int, ...]) -> None:
    """A ratio of 4 is beyond the fp32 bound of 2.0 and named as such."""
    for seed in range(20):
        outcome = pooled(4.0, shape, draws=5, seed=seed).judge()
        assert outcome.passed is False and "the baseline's" in outcome.detail


def test_small_outputs_wait_for_32_and_then_512_draws() -> None:
    """Below 1,024 elements 8 draws decide nothing, and a ratio between 2 and 8 counts only after 512 draws."""
    assert pooled(1.0, (4, 8), draws=8, seed=1).judge().passed is None
    assert pooled(1.0, (4, 8), draws=32, seed=1).judge().passed is True
    assert pooled(2.6, (4, 8), draws=40, seed=1).judge().passed is None
    assert pooled(2.6, (4, 8), draws=512, seed=1).judge().passed is False


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_have_the_tighter_bound(dtype: torch.dtype) -> None:
    """Rounding alone passes for half outputs; 1.5 times its error, which fp32 would allow, does not."""
    generator = torch.Generator().manual_seed(0)
    good, bad = (Pool(dtype, limits_for(dtype, Tolerance())) for _ in range(2))
    for _ in range(5):
        expected = torch.rand(64, 256, generator=generator, dtype=torch.float64) + 1
        baseline = expected.to(dtype)
        extra = torch.where(torch.rand(64, 256, generator=generator) < 0.15, 1.0, 0.0) * ulp(expected, dtype)
        good.add(baseline.clone(), baseline, expected)
        bad.add((baseline.double() + extra).to(dtype), baseline, expected)
    assert good.judge().passed is True
    assert 1.25 < (bad.ratio or 0) < 2.0 and bad.judge().passed is False


def test_an_exact_baseline_allows_one_unit_in_the_last_place() -> None:
    """Where the baseline is exact, one ulp passes and two do not."""
    expected = torch.linspace(1.0, 1.9, 4096, dtype=torch.float64).to(torch.float32).double().view(64, 64)
    for steps, passed in ((1, True), (2, False)):
        pool = Pool(torch.float32, FP32)
        moved = (expected + steps * ulp(expected, torch.float32)).float()
        pool.add(moved, expected.float(), expected)
        assert pool.judge().passed is passed


def test_one_wrong_element_among_a_million_fails() -> None:
    """A single element beyond 4x the baseline's largest error is found and named, though the RMS hardly moves."""
    generator = torch.Generator().manual_seed(3)
    expected = torch.randn(1000, 1000, generator=generator, dtype=torch.float64)
    baseline = noisy(expected, 1e-6, generator, torch.float32)
    candidate = noisy(expected, 1e-6, generator, torch.float32)
    candidate[17, 923] += 1e-4
    pool = Pool(torch.float32, FP32)
    pool.add(candidate, baseline, expected)
    outcome = pool.judge()
    assert outcome.passed is False and "[17, 923]" in outcome.detail and pool.ratio is not None and pool.ratio < 2


def test_a_tail_three_times_worse_cannot_drown() -> None:
    """Columns 960 to 999 at 3.5x the error keep the pooled ratio under 2: the tile finds them."""
    generator = torch.Generator().manual_seed(4)
    pool = Pool(torch.float32, Limits(2.0, 40.0, "only (a) and (c)"))
    expected = torch.randn(512, 1000, generator=generator, dtype=torch.float64)
    candidate = noisy(expected, 1e-6, generator, torch.float64)
    candidate[:, 960:] = expected[:, 960:] + 3.5 * (candidate[:, 960:] - expected[:, 960:])
    pool.add(candidate.float(), noisy(expected, 1e-6, generator, torch.float32), expected)
    outcome = pool.judge()
    assert pool.ratio is not None and pool.ratio < 2
    assert outcome.passed is False and outcome.detail.startswith("columns 960")


def test_nan_is_no_wildcard() -> None:
    """NaN where the reference has a number fails, a number where it has NaN fails, NaN for NaN passes."""
    base = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    assert mask_mismatch(base.clone(), base, base.double()) == ""
    for place, value in ((0, float("nan")), (1, 1.0), (2, -float("inf")), (3, 7.0)):
        other = base.clone()
        other[place] = value
        assert f"at [{place}]" in mask_mismatch(other, base, base.double())


def test_where_the_baseline_itself_overflows_either_value_is_accepted() -> None:
    """fp64 says finite, the baseline says inf: the candidate may do as either."""
    expected, baseline = torch.tensor([1e30], dtype=torch.float64), torch.tensor([float("inf")])
    assert mask_mismatch(torch.tensor([1e30]), baseline, expected) == ""
    assert mask_mismatch(torch.tensor([float("inf")]), baseline, expected) == ""
    assert mask_mismatch(torch.tensor([float("nan")]), baseline, expected) != ""


def test_ulp_agrees_with_nextafter() -> None:
    """The unit in the last place is the gap to the next number, for normal and subnormal values."""
    for value in (1.0, 1.5, 3e-3, 7e20, 1e-40):
        x = torch.tensor(value)
        gap = torch.nextafter(x, torch.tensor(float("inf"))).double() - x.double()
        assert float(ulp(x.double(), torch.float32)) == float(gap)
    assert float(ulp(torch.tensor(1.0, dtype=torch.float64), torch.bfloat16)) == 2.0**-7


def test_tolerance_widens_in_the_open() -> None:
    """A user's TOLERANCE raises the bound and its label says so."""
    limits = limits_for(torch.float32, Tolerance(rms=10.0))
    assert limits.rms == 10.0 and limits.max == 4.0 and "user tolerance" in limits.label


def test_fp64_tasks_get_an_n_u_baseline() -> None:
    """For fp64 outputs the stand-in baseline lies n units of rounding away, not zero."""
    expected = torch.ones(10, dtype=torch.float64)
    assert float((nu_bound(expected, 1000) - expected).max()) == pytest.approx(1000 * 2.0**-53, rel=1e-2)


def test_an_outlier_that_outweighs_all_errors_decides_nothing_by_itself() -> None:
    """300 equal candidates on data with one huge element: whose rounding is luckier there is no verdict."""
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        expected = torch.randn(64, 64, generator=generator, dtype=torch.float64)
        expected[3, 5] = 1e4
        sides = [expected.clone() for _ in range(2)]
        for side in sides:
            side += torch.randn(64, 64, generator=generator, dtype=torch.float64) * 1e-7 * expected.abs()
        pool = Pool(torch.float32, FP32)
        pool.add(sides[0].float(), sides[1].float(), expected)
        assert pool.judge().passed is True, pool.judge().detail


def test_repeating_errors_are_judged_by_element_only() -> None:
    """On zeros and ones one rounding repeats everywhere: twice the baseline's luck is no failure, ten times is."""
    expected = torch.full((64, 64), 1.0, dtype=torch.float64) / 3
    for factor, passed in ((3.0, True), (30.0, False)):
        pool = Pool(torch.float64, FP32, averages=False)
        pool.add(expected + factor * 1e-10, expected + 1e-10, expected)
        assert pool.judge().passed is passed


def test_luck_that_repeats_in_every_row_is_still_luck() -> None:
    """One expanded row, whose baseline happens to be exact to a tenth of a unit: two units off pass, six do not."""
    expected = torch.full((64, 1), 0.9957361, dtype=torch.float64)
    baseline = expected.float()
    unit = 2.0**-24
    for units, passed in ((2, True), (6, False)):
        pool = Pool(torch.float32, FP32, averages=False)
        pool.add(baseline + units * unit, baseline, baseline.double() + unit / 10)
        assert pool.judge().passed is passed, pool.judge().detail


def test_a_bias_beneath_the_rule_is_told_and_chance_is_not() -> None:
    """A mean over 512 divided by 513 passes the rule on RMS errors in bfloat16, and its mean error is told; of 40
    right ones, of rows that share a factor too, no bias is told."""
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(256, 32, generator=generator, dtype=torch.float64) * 3
        own, rows = Pool(torch.bfloat16, Limits(1.25, 4.0, "rule")), Pool(torch.bfloat16, Limits(1.25, 4.0, "rule"))
        right, off = x.bfloat16(), (x * 512 / 513).bfloat16()
        own.add(right, right, x)
        shared = 1 + torch.randn(256, 1, generator=generator, dtype=torch.float64) * 2**-9
        rows.add((x * shared).bfloat16(), right, x)
        assert own.bias.told() is None and rows.bias.told() is None, seed
        if seed < 10:
            biased = Pool(torch.bfloat16, Limits(1.25, 4.0, "rule"))
            biased.add(off, right, x)
            told = biased.bias.told()
            assert told is not None and -0.6 < told[0] < -0.2 and abs(told[1]) < 0.03
