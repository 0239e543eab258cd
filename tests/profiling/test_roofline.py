"""The floor, by values computed by hand, on a GPU of round numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kforge.errors import KforgeError
from kforge.profiling.ceilings import Ceilings
from kforge.profiling.roofline import Bound, Floor, achieved, floor, hack_threshold, headroom, no_room

# 4 TB/s read, 2 TB/s write, 3 TB/s copied, 50 MB of L2, 50 and 800 Tera-operations/s, 2 us a launch.
ROUND = Ceilings(
    gpu="round",
    bandwidth={"read": 4e12, "copy": 3e12, "write": 2e12},
    rates={"fp32": 50e12, "tf32": 400e12, "fp16": 800e12},
    l2_bytes=50_000_000,
    launch_s=2e-6,
    source="calibrated",
)


@dataclass(frozen=True)
class Cost:
    read_bytes: int
    write_bytes: int
    flops: dict[str, float] = field(default_factory=dict)


def test_reading_is_bound_by_the_read_rate() -> None:
    """4 GB read at 4 TB/s take 1 ms; one number written costs nothing."""
    result = floor(Cost(4_000_000_000, 4), ROUND)
    assert result.ms == pytest.approx(1.0)
    assert result.bound is Bound.MEMORY
    assert result.source == "calibrated"


def test_one_l2_of_writes_is_free() -> None:
    """Writes up to the L2's size do not count; 50 MB beyond it take 0.025 ms at 2 TB/s."""
    assert floor(Cost(0, 50_000_000), ROUND).ms == 0.0
    assert floor(Cost(0, 100_000_000), ROUND).ms == pytest.approx(0.025)


def test_a_copy_is_bound_by_the_mixed_rate() -> None:
    """3 GB read and 3 GB (beyond the L2) written take 2 ms at 3 TB/s: more than either side alone."""
    result = floor(Cost(3_000_000_000, 3_050_000_000), ROUND)
    assert result.terms["read"] == pytest.approx(0.75)
    assert result.terms["write"] == pytest.approx(1.5)
    assert result.terms["mixed"] == pytest.approx(2.0)
    assert result.ms == pytest.approx(2.0)


def test_mixed_rate_between_the_measured_points() -> None:
    """Time per byte is linear between read and copy: a quarter written costs (1/4 + 1/3) / 2 per TB."""
    assert ROUND.mixed(0.0) == pytest.approx(4e12)
    assert ROUND.mixed(0.5) == pytest.approx(3e12)
    assert ROUND.mixed(1.0) == pytest.approx(2e12)
    assert 1e12 / ROUND.mixed(0.25) == pytest.approx((1 / 4 + 1 / 3) / 2)
    with pytest.raises(KforgeError, match="between 0 and 1"):
        ROUND.mixed(1.5)


def test_arithmetic_binds_when_it_takes_longer() -> None:
    """100 Tera-operations at fp32 take 2 s; the kinds run side by side, so the slowest binds and not the sum."""
    result = floor(Cost(4_000_000_000, 0, {"fp32": 100e12, "tensor": 800e12}), ROUND)
    assert result.terms["fp32"] == pytest.approx(2000.0)
    assert result.terms["tensor"] == pytest.approx(1000.0)
    assert result.ms == pytest.approx(2000.0)
    assert result.bound is Bound.COMPUTE


def test_tensor_is_the_fastest_matrix_rate() -> None:
    """A matrix product is bounded by half precision's rate, whatever its type: it may be computed from such parts."""
    assert ROUND.rate("tensor") == 800e12


def test_unknown_kind_of_operation_is_an_error() -> None:
    """A kind without a rate is named, never left out of the floor."""
    with pytest.raises(KforgeError, match="'fp4'") as error:
        floor(Cost(1, 1, {"fp4": 1.0}), ROUND)
    assert "fp32" in error.value.hint


def test_a_floor_shorter_than_a_launch_is_latency_bound() -> None:
    """4 MB take 1 us, less than the 2 us of a launch; the floor itself stays 1 us."""
    result = floor(Cost(4_000_000, 0), ROUND)
    assert result.bound is Bound.LATENCY
    assert result.ms == pytest.approx(1e-3)


def test_no_traffic_has_no_floor() -> None:
    """A task that moves nothing has floor 0 and infinite headroom: there is no division by zero."""
    result = floor(Cost(0, 0), ROUND)
    assert (result.ms, headroom(1.0, result)) == (0.0, float("inf"))
    assert not no_room(1.0, None, result)


@pytest.mark.parametrize(
    ("eager", "compiled", "expected"),
    [(1.049, None, True), (1.051, None, False), (2.0, 1.04, True), (1.04, 2.0, True), (2.0, 1.06, False)],
)
def test_no_room_within_five_percent_of_the_faster_baseline(
    eager: float, compiled: float | None, expected: bool
) -> None:
    """The faster of eager and compile-default decides, against 1.05 times the floor."""
    assert no_room(eager, compiled, Floor(1.0, Bound.MEMORY, {}, "calibrated")) is expected


def test_headroom_and_achieved() -> None:
    """Headroom is baseline over floor, achieved is floor over candidate."""
    limit = Floor(2.0, Bound.MEMORY, {}, "calibrated")
    assert headroom(5.0, limit) == 2.5
    assert achieved(2.5, limit) == 0.8


def test_hack_threshold_is_nine_tenths_of_the_sheets_floor() -> None:
    """4 GB of reads: 0.9 ms on the round GPU."""
    assert hack_threshold(Cost(4_000_000_000, 0), ROUND) == pytest.approx(0.9)


def test_hack_threshold_allows_matrix_cores_for_fp32() -> None:
    """800 Tera-operations in fp32 have a floor of 16 s, and no time above 0.9 s is taken for a cheat."""
    cost = Cost(0, 0, {"fp32": 800e12})
    assert floor(cost, ROUND).ms == pytest.approx(16_000)
    assert hack_threshold(cost, ROUND) == pytest.approx(900)


def test_kinds_without_a_ceiling_do_not_count() -> None:
    """Integer and special-function operations have no measured rate yet: the floor is that of the rest."""
    assert floor(Cost(4_000_000_000, 0, {"int": 1e15, "special": 1e15}), ROUND).ms == pytest.approx(1.0)
