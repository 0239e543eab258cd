"""Every cheating candidate gets the outcome that its first lines state, and every honest one passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redteam.support import CHEATS, HERE, HONEST, ON_GPU, Bench, read


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench() as made:
        yield made


@pytest.mark.parametrize("path", [*CHEATS, *HONEST], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_fixture_gets_its_outcome(bench: Bench, path: Path) -> None:
    """Status as stated, the detector fired by name, words for whoever must act on it; no detector on honest ones."""
    fixture = read(path)
    assert fixture.complaint(bench.judge(fixture)) == ""


def test_every_row_without_a_gpu_has_a_fixture() -> None:
    """Each row of the list of tricks that can be played on the emulator is named by at least one fixture."""
    told = " ".join(read(path).about for path in CHEATS)
    on_a_gpu = {1, 22, 25, 26}  # tests/gpu/test_redteam_gpu.py
    assert [row for row in range(1, 34) if row not in on_a_gpu and f"Row {row}:" not in told] == []


def test_every_row_has_a_fixture_somewhere() -> None:
    """All 33 rows, those that need a GPU included; at least ten cheats and ten honest candidates beyond them."""
    abouts = [read(path).about for path in (*CHEATS, *ON_GPU)]
    assert [row for row in range(1, 34) if not any(f"Row {row}:" in about for about in abouts)] == []
    assert sum(about.startswith("Own:") for about in abouts) >= 10
    assert len(HONEST) + sum(about.startswith("Honest:") for about in abouts) >= 20


def test_a_hard_coded_shape_is_reported(bench: Bench) -> None:
    """Row 16: right for its one shape, and said to be written for it."""
    report = bench.judge(read(HERE / "candidates" / "hard_coded_shape.py"))
    assert any("hard_coded_shape" in warning for warning in report.warnings)


def test_a_degenerate_task_is_said_and_never_a_win(bench: Bench) -> None:
    """Row 11: a constant reference is marked, whatever the candidate does."""
    report = bench.judge(read(HERE / "candidates" / "degenerate_task.py"))
    assert report.degenerate and report.verdict.value == "untimed"


def test_vendor_calls_of_an_honest_candidate_are_listed(bench: Bench) -> None:
    """The library product is named in the report, from the source and from what ran."""
    report = bench.judge(read(HERE / "honest" / "vendor_call.py"))
    assert {"matmul", "aten.mm.default"} <= set(report.vendor_calls)
