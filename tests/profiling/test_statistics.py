"""The statistics behind a verdict, on synthetic samples whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from kforge.profiling.statistics import (
    MIN_NOISE,
    Ratio,
    geometric_mean,
    median,
    noise_floor,
    pooled,
    ratio_of_medians,
    verdict,
)


def draw(rng: np.random.Generator, centre: float, drift: np.ndarray, spread: float = 0.01) -> list[list[float]]:
    """One side: a batch of 40 per round around centre x the round's drift, with a tail of slow outliers."""
    rounds = []
    for factor in drift:
        samples = centre * factor * (1 + spread * rng.standard_normal(40))
        samples[rng.random(40) < 0.05] *= 1.5
        rounds.append(list(samples))
    return rounds


def test_median_of_even_and_odd_counts() -> None:
    """The middle, or the mean of the two middle values."""
    assert median([3, 1, 2]) == 2 and median([4, 1, 2, 3]) == 2.5
    with pytest.raises(ValueError):
        median([])


def test_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    """Over 200 synthetic comparisons with common drift and own jitter per round, the 95 % interval covers the truth."""
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        drift = 1 + 0.05 * rng.standard_normal(8)
        jitter = [1 + 0.004 * rng.standard_normal(8) for _ in range(2)]
        baseline, candidate = draw(rng, 1.3, drift * jitter[0]), draw(rng, 1.0, drift * jitter[1])
        found = ratio_of_medians(baseline, candidate, seed=trial, resamples=300)
        covered += found.low <= 1.3 <= found.high
    assert 180 <= covered <= 200


def test_common_drift_does_not_widen_the_interval_to_uselessness() -> None:
    """Clocks that fall by a third half-way move both sides: a twofold gain is still seen as about twofold."""
    rng = np.random.default_rng(2)
    drift = np.array([1.0] * 4 + [1.5] * 4)
    found = ratio_of_medians(draw(rng, 2.0, drift), draw(rng, 1.0, drift))
    assert found.ratio == pytest.approx(2.0, rel=0.02)
    assert found.low <= found.ratio <= found.high


@pytest.mark.parametrize(
    ("truth", "expected"), [(1.0, {"same", "unclear"}), (1.5, {"faster"}), (0.7, {"slower"}), (1.02, {"faster"})]
)
def test_verdict_of_known_truths(truth: float, expected: set[str]) -> None:
    """With a noise floor from an A/A run of the same kind, clear differences are named and equal sides never are."""
    rng = np.random.default_rng(3)
    flat = np.ones(10)
    for trial in range(20):
        noise = noise_floor(draw(rng, 1.0, flat), draw(rng, 1.0, flat))
        found = ratio_of_medians(draw(rng, truth, flat), draw(rng, 1.0, flat), seed=trial, resamples=300)
        assert verdict(found, noise) in expected


def test_verdict_boundaries() -> None:
    """Outside, inside and across the noise band."""
    assert verdict(Ratio(1.1, 1.05, 1.15), 0.02) == "faster"
    assert verdict(Ratio(0.9, 0.85, 0.95), 0.02) == "slower"
    assert verdict(Ratio(1.0, 0.99, 1.01), 0.02) == "same"
    assert verdict(Ratio(1.02, 0.99, 1.05), 0.02) == "unclear"
    assert verdict(Ratio(1.02, float("nan"), 1.05), 0.02) == "unclear"


def test_noise_floor_has_a_least_value_and_grows_with_noise() -> None:
    """Perfectly equal sides get the minimum; a jittery machine gets more."""
    still = [[1.0] * 10] * 5
    assert noise_floor(still, still) == MIN_NOISE
    rng = np.random.default_rng(4)
    jittery = [draw(rng, 1.0, 1 + 0.03 * rng.standard_normal(8)) for _ in range(2)]
    assert noise_floor(*jittery) > 2 * MIN_NOISE


def test_rounds_must_match() -> None:
    """Sides of different length, or empty rounds, are an error and not a silent truncation."""
    with pytest.raises(ValueError):
        ratio_of_medians([[1.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError):
        ratio_of_medians([[]], [[1.0]])
    assert pooled([[1.0, 2.0], [3.0]]) == [1.0, 2.0, 3.0]


def test_geometric_mean() -> None:
    """The mean of factors: 2 and 1/2 cancel."""
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    with pytest.raises(ValueError):
        geometric_mean([])
