"""The words for a speed-up: an interval against the noise floor, several variants, degenerate tasks."""

from __future__ import annotations

import pytest

from kforge.environment.report import Costs, Report, Speedup, Status, VariantResult, Verdict
from kforge.environment.verdict import better, confirmed, final, headline, verdict_of


def speedup(ratio: float, half: float = 0.01, noise: float = 0.005) -> Speedup:
    return Speedup("eager", ratio, (ratio - half, ratio + half), noise)


@pytest.mark.parametrize(
    ("ratio", "half", "expected"),
    [
        (1.10, 0.01, Verdict.FASTER),
        (0.90, 0.01, Verdict.SLOWER),
        (1.001, 0.002, Verdict.SAME),
        (1.01, 0.02, Verdict.UNCLEAR),
        (1.004, 0.003, Verdict.UNCLEAR),
    ],
)
def test_the_interval_against_the_noise_decides(ratio: float, half: float, expected: Verdict) -> None:
    """Outside 1 +- noise is FASTER or SLOWER, inside is SAME, across its edge is UNCLEAR."""
    assert verdict_of(speedup(ratio, half)) is expected


def test_without_times_the_verdict_is_untimed() -> None:
    """No speed-up, no verdict; and no variants give none either."""
    assert verdict_of(None) is Verdict.UNTIMED
    assert headline([]) == (Verdict.UNTIMED, None)


def results(*ratios: float) -> list[VariantResult]:
    return [VariantResult(str(r), verdict_of(speedup(r)), speedup(r)) for r in ratios]


def test_the_headline_is_the_geometric_mean_and_mixed_when_one_is_slower() -> None:
    """2x and 0.5x are MIXED with a ratio of 1; 2x and 1x are FASTER by the square root of 2; all slower is SLOWER."""
    verdict, total = headline(results(2.0, 0.5))
    assert verdict is Verdict.MIXED and total is not None and total.ratio == pytest.approx(1.0)
    verdict, total = headline(results(2.0, 1.0))
    assert verdict is Verdict.FASTER and total is not None and total.ratio == pytest.approx(2**0.5)
    assert headline(results(0.5, 0.8))[0] is Verdict.SLOWER


def test_a_degenerate_task_is_never_faster() -> None:
    """A constant output cannot be won on."""
    assert final(Verdict.FASTER, degenerate=True) is Verdict.UNCLEAR
    assert final(Verdict.SLOWER, degenerate=True) is Verdict.SLOWER
    assert final(Verdict.FASTER, degenerate=False) is Verdict.FASTER


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Verdict.FASTER, Verdict.FASTER, Verdict.FASTER),
        (Verdict.FASTER, Verdict.SAME, Verdict.UNCLEAR),
        (Verdict.FASTER, Verdict.SLOWER, Verdict.UNCLEAR),
        (Verdict.SLOWER, Verdict.SLOWER, Verdict.SLOWER),
        (Verdict.UNCLEAR, Verdict.SAME, Verdict.SAME),
    ],
)
def test_a_second_process_confirms_or_the_verdict_is_unclear(
    first: Verdict, second: Verdict, expected: Verdict
) -> None:
    """What only one of two processes showed is not told as a result."""
    assert confirmed(first, second) is expected


def report(ms: float, mj: float | None = None, ratio: float = 2.0) -> Report:
    return Report(
        "op",
        "0",
        Status.VERIFIED,
        Verdict.FASTER,
        "standard",
        "GPU",
        speedup=speedup(ratio, noise=0.01),
        times_ms={"candidate": ms},
        costs=Costs(energy_mj={} if mj is None else {"candidate": mj}),
    )


def test_speed_comes_first_and_energy_breaks_ties() -> None:
    """5 % faster wins whatever it takes; within the noise the lower energy wins; without figures the shorter time."""
    assert better(report(0.95, 9.0), report(1.0, 1.0)) and not better(report(1.0, 1.0), report(0.95, 9.0))
    assert better(report(1.002, 1.0), report(1.0, 2.0)) and not better(report(1.0, 2.0), report(1.002, 1.0))
    assert better(report(1.0), report(1.002)) and not better(report(1.002), report(1.0))


def test_energy_first_keeps_to_the_bound_on_speed() -> None:
    """The lower energy wins among candidates of the wanted speed-up; one that misses it loses to one that does not."""
    assert better(report(2.0, 1.0, 1.2), report(1.0, 2.0, 2.4), "energy", 1.1)
    assert not better(report(2.0, 1.0, 1.2), report(1.0, 2.0, 2.4), "energy", 1.5)
    assert better(report(1.0, 2.0, 1.2), report(2.0, 1.0, 0.6), "energy", 1.5)
    with pytest.raises(ValueError):
        better(report(1.0), report(1.0), "beauty")
