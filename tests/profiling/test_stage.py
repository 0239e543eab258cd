"""Stage one by values computed by hand: class, headroom, and what happens when counters disagree."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kforge.errors import MissingError
from kforge.profiling.ceilings import DATA_SHEETS, Ceilings, sheet_for_arch
from kforge.profiling.evidence import Kind
from kforge.profiling.stage import classify, confirmed, measured_kind, stage_one

ROUND = Ceilings(
    "round", {"read": 4e12, "copy": 4e12, "write": 4e12}, {"fp32": 50e12, "fp16": 800e12, "special": 4e12},
    50_000_000, 2e-6, "calibrated",
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    read_bytes: int
    write_bytes: int = 0
    flops: dict[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("memory", "compute", "kind"),
    [
        (100, 10, Kind.MEMORY),
        (10, 100, Kind.COMPUTE),
        (100, 75, Kind.MIXED),
        (75, 100, Kind.MIXED),
        (1, 1.5, Kind.LATENCY),
    ],
)
def test_classes(memory: float, compute: float, kind: Kind) -> None:
    """The larger term; mixed where they are alike; latency where both are shorter than a launch of 2 us."""
    assert classify(memory, compute, 2.0) is kind


def test_numbers_of_a_memory_bound_task() -> None:
    """4 GB at 4 TB/s are 1,000 us; a baseline of 1,800 us leaves 1.8x, a candidate of 1,250 us reaches 80 %."""
    stage = stage_one(
        Cost(4_000_000_000, 0, {"fp32": 1e9}), ROUND, baselines_us={"eager": 2400.0, "compile_default": 1800.0},
        candidate_us=1250.0,
    )  # fmt: skip
    assert stage.kind is Kind.MEMORY
    assert stage.floor_us == stage.memory_us == pytest.approx(1000.0)
    assert stage.compute_us == pytest.approx(20.0)
    assert stage.headroom == pytest.approx(1.8) and stage.achieved == pytest.approx(0.8)
    assert stage.intensity == pytest.approx(0.25) and not stage.no_room


def test_no_room_within_five_per_cent() -> None:
    """The faster of eager and compile-default within 5 % of the floor; a user's own baseline does not decide."""
    cost = Cost(4_000_000_000)
    assert stage_one(cost, ROUND, baselines_us={"eager": 1040.0}).no_room
    assert not stage_one(cost, ROUND, baselines_us={"eager": 1060.0, "user:f": 1000.0}).no_room


def test_special_functions_can_bind_without_raising_the_floor() -> None:
    """8e9 exponentials take 2,000 us on their unit; the floor stays the memory's, since polynomials could do them."""
    stage = stage_one(Cost(4_000_000_000, 0, {"special": 8e9}), ROUND)
    assert stage.compute_us == pytest.approx(2000.0) and stage.floor_us == pytest.approx(1000.0)
    assert stage.kind is Kind.COMPUTE


def test_without_times_the_headroom_has_a_reason() -> None:
    """No GPU: no number, and why."""
    stage = stage_one(Cost(4_000), ROUND, why_untimed="untimed: there is no GPU")
    assert stage.headroom is None and stage.headroom_reason == "untimed: there is no GPU"


def test_the_analytic_bound_wins_and_says_so() -> None:
    """ncu's class is kept beside it; an agreement needs no words, a disagreement has the percentages."""
    stage = stage_one(Cost(4_000_000_000), ROUND)
    same = confirmed(stage, {"memory_percent": 91.0, "sm_percent": 20.0})
    assert same.kind is Kind.MEMORY and same.measured == "memory" and same.notes == ()
    other = confirmed(stage, {"memory_percent": 30.0, "sm_percent": 85.0})
    assert other.kind is Kind.MEMORY and other.measured == "compute"
    assert "memory 30 %, arithmetic 85 %" in other.notes[0]
    assert confirmed(stage, {}) == stage


def test_class_by_counters() -> None:
    """Nothing busy is latency; two alike are mixed; no counters, no class."""
    assert measured_kind({"memory_percent": 20.0, "sm_percent": 30.0}) is Kind.LATENCY
    assert measured_kind({"memory_percent": 80.0, "sm_percent": 75.0}) is Kind.MIXED
    assert measured_kind({"sm_percent": 75.0}) is None


def test_a_data_sheet_stands_for_an_architecture() -> None:
    """sm_90a stands for an H200, marked as a data sheet; what is unknown is an error that lists what is known."""
    assert sheet_for_arch("sm_90a") is DATA_SHEETS["H200"]
    assert sheet_for_arch("sm_90a").processors == 132 and sheet_for_arch("sm_80").source == "data sheet"
    with pytest.raises(MissingError, match="sm_70"):
        sheet_for_arch("sm_70")
