"""Tricks that need a GPU, and honest candidates that do: streams, graphs, clocks, memory (tests/redteam/gpu)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redteam.support import CHEATS, HONEST, ON_GPU, Bench, read

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench("cuda:0", seconds=1.0) as made:
        yield made


def timed_alone(paths: list[Path]) -> list[object]:
    """Parameters, marked where the outcome is seen in times or memory."""
    return [pytest.param(p, id=p.stem, marks=[pytest.mark.alone] if read(p).timed else []) for p in paths]


@pytest.mark.parametrize("path", timed_alone(ON_GPU))
def test_the_fixture_gets_its_outcome(bench: Bench, path: Path) -> None:
    """Status, detector, the verdict that it must not get, the memory ratio: as the head says."""
    fixture = read(path)
    if fixture.missing:
        pytest.skip(f"needs {fixture.missing}")
    report = bench.judge(fixture)
    missing = [line for line in report.not_tested if fixture.needs and line.startswith(f"detector {fixture.needs}:")]
    if missing:
        pytest.skip(f"{fixture.needs} is not in force here: {missing[0]}")
    assert fixture.complaint(report) == ""


@pytest.mark.parametrize("path", timed_alone(HONEST))
def test_what_is_honest_on_the_emulator_is_honest_here(bench: Bench, path: Path) -> None:
    """The same files, built for the device: verified, and no detector fires."""
    fixture = read(path)
    assert fixture.complaint(bench.judge(fixture)) == ""


@pytest.mark.parametrize("path", timed_alone(CHEATS))
def test_what_cheats_on_the_emulator_cheats_here(bench: Bench, path: Path) -> None:
    """Never verified on the device either, whichever detector names it there."""
    fixture = read(path)
    assert fixture.complaint(bench.judge(fixture)) == ""


def test_the_next_evaluation_is_right_after_all_of_them(bench: Bench) -> None:
    """A poisoned context, a patched timer and a stale graph ended their own candidates only."""
    fixture = read(next(path for path in ON_GPU if path.stem == "streams_joined"))
    assert fixture.complaint(bench.judge(fixture)) == ""
