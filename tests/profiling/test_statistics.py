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
    ratio_of_rounds,
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
        found = ratio_of_rounds(baseline, candidate, seed=trial, resamples=300)
        covered += found.low <= 1.3 <= found.high
    assert 180 <= covered <= 200


def test_common_drift_does_not_widen_the_interval_to_uselessness() -> None:
    """Clocks that fall by a third half-way move both sides: a twofold gain is still seen as about twofold."""
    rng = np.random.default_rng(2)
    drift = np.array([1.0] * 4 + [1.5] * 4)
    found = ratio_of_rounds(draw(rng, 2.0, drift), draw(rng, 1.0, drift))
    assert found.ratio == pytest.approx(2.0, rel=0.02)
    assert found.low <= found.ratio <= found.high


@pytest.mark.parametrize(
    ("truth", "expected"), [(1.0, {"same", "unclear"}), (1.5, {"faster"}), (0.7, {"slower"}), (1.03, {"faster"})]
)
def test_verdict_of_known_truths(truth: float, expected: set[str]) -> None:
    """Clear differences are named against the least noise floor, and equal sides never are."""
    rng = np.random.default_rng(3)
    flat = np.ones(10)
    for trial in range(20):
        found = ratio_of_rounds(draw(rng, truth, flat), draw(rng, 1.0, flat), seed=trial, resamples=300)
        assert verdict(found, MIN_NOISE) in expected


def processes(rng: np.random.Generator, slower: float) -> Ratio:
    """One comparison of two processes on a quiet GPU: 0.1 % between processes, 0.15 % between rounds, 1 % of samples.

    The figures are those of A/A runs of a kernel of 0.25 ms on an H200, doubled.
    """
    ours, theirs = (1 + 0.001 * rng.standard_normal() + 0.0015 * rng.standard_normal(10) for _ in range(2))
    common = 1 + 0.01 * rng.standard_normal(10)
    return ratio_of_rounds(draw(rng, 1.0, theirs * common), draw(rng, slower, ours * common), resamples=400)


def test_equal_processes_are_same_and_two_percent_are_slower() -> None:
    """Of 200 simulated A/A pairs at least 198 are SAME, of 200 that are 2 % slower at least 195 are SLOWER."""
    rng = np.random.default_rng(7)
    same = [verdict(processes(rng, 1.0), MIN_NOISE) for _ in range(200)]
    slower = [verdict(processes(rng, 1.02), MIN_NOISE) for _ in range(200)]
    assert same.count("same") >= 198 and "faster" not in same and "slower" not in same
    assert slower.count("slower") >= 195 and "faster" not in slower and "same" not in slower


def test_a_disturbed_round_weighs_nothing() -> None:
    """One round of ten in which a side took half as long again moves the ratio by less than half a percent."""
    rng = np.random.default_rng(8)
    flat, hit = np.ones(10), np.array([1.5] + [1.0] * 9)
    found = ratio_of_rounds(draw(rng, 1.0, flat), draw(rng, 1.0, hit))
    assert found.ratio == pytest.approx(1.0, abs=0.005)


def test_time_added_to_most_samples_weighs_little() -> None:
    """Two of three calls take 2 % longer in one process of two that do the same: still within half a percent."""
    rng = np.random.default_rng(10)
    quiet = [rng.normal(1.0, 0.001, 24).tolist() for _ in range(8)]
    busy = [[t * (1.02 if i % 3 else 1.0) for i, t in enumerate(samples)] for samples in quiet]
    assert ratio_of_rounds(quiet, busy).ratio == pytest.approx(1.0, abs=0.005)


def test_calls_that_are_fast_now_and_then_do_not_stand_for_all() -> None:
    """A candidate that skips every sixth call gains no more than the 3 % under its median."""
    honest = [[1.0] * 24 for _ in range(8)]
    skipping = [[0.01 if i % 6 == 0 else 1.0 for i in range(24)] for _ in range(8)]
    assert ratio_of_rounds(honest, skipping).ratio == pytest.approx(1 / 0.97)


def test_one_round_resamples_its_samples() -> None:
    """A single round still has an interval, which holds the ratio of its medians."""
    rng = np.random.default_rng(9)
    found = ratio_of_rounds(draw(rng, 1.2, np.ones(1)), draw(rng, 1.0, np.ones(1)))
    assert 1.15 < found.low < found.ratio < found.high < 1.25


def test_verdict_boundaries() -> None:
    """Outside, inside and across the noise band."""
    assert verdict(Ratio(1.1, 1.05, 1.15), 0.02) == "faster"
    assert verdict(Ratio(0.9, 0.85, 0.95), 0.02) == "slower"
    assert verdict(Ratio(1.0, 0.99, 1.01), 0.02) == "same"
    assert verdict(Ratio(1.02, 0.99, 1.05), 0.02) == "unclear"
    assert verdict(Ratio(1.02, float("nan"), 1.05), 0.02) == "unclear"
    assert verdict(Ratio(0.7, 0.6, 0.8), 0.5) == "unclear" and verdict(Ratio(0.4, 0.3, 0.45), 0.5) == "slower"


def test_noise_floor_has_a_least_value_and_grows_with_noise() -> None:
    """Equal processes get the minimum, unequal ones more; one disturbed pair of three changes nothing."""
    assert noise_floor([1.0, 1.001, 0.999]) == MIN_NOISE
    assert noise_floor([1.02, 0.98, 1.03]) > 4 * MIN_NOISE
    assert noise_floor([1.001, 1.2, 0.999]) == MIN_NOISE
    with pytest.raises(ValueError):
        noise_floor([])


def test_rounds_must_match() -> None:
    """Sides of different length, or empty rounds, are an error and not a silent truncation."""
    with pytest.raises(ValueError):
        ratio_of_rounds([[1.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError):
        ratio_of_rounds([[]], [[1.0]])
    assert pooled([[1.0, 2.0], [3.0]]) == [1.0, 2.0, 3.0]


def test_geometric_mean() -> None:
    """The mean of factors: 2 and 1/2 cancel."""
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    with pytest.raises(ValueError):
        geometric_mean([])
