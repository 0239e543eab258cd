"""Tuning: the space is read from the source, the fastest right configuration is written back, nothing else changes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import pytest

from kforge.environment.report import Report, Status, Verdict
from kforge.environment.tuning import tune, tuning_spaces, write_tuned
from kforge.kernel.candidate import Candidate

SOURCE = """import torch
from kforge.kernel import Kernel

# größer als ASCII
rows = Kernel(
    "rows",
    source="x.cu",
    grid="(n, 1, 1)",
    block="(BLOCK, 1, 1)",
    constants={"BLOCK": 256, "VEC": 4},
    tune={"BLOCK": [128, 256, 512], "VEC": [4, 1]},
)
fixed = Kernel("fixed", source="x.cu", grid="(1, 1, 1)", block="(32, 1, 1)")
"""


def test_spaces_are_read_from_the_source() -> None:
    """Literal constants and tune of each Kernel; a kernel without a space has none."""
    (space,) = tuning_spaces(SOURCE)
    assert space.kernel == "rows" and space.declared == {"BLOCK": 256, "VEC": 4} and space.size == 6


def test_tuned_is_inserted_and_replaced() -> None:
    """The call gains `tuned=`, a second time its value is replaced, and every other byte stays."""
    once = write_tuned(SOURCE, "rows", [("n < 100", {"BLOCK": 128}), (True, {"BLOCK": 512})])
    ast.parse(once)
    assert """tuned=[('n < 100', {'BLOCK': 128}), (True, {'BLOCK': 512})]""" in once
    twice = write_tuned(once, "rows", [(True, {"BLOCK": 64})])
    assert twice.count("tuned=") == 1 and "(True, {'BLOCK': 64})" in twice
    assert twice.replace(", tuned=[(True, {'BLOCK': 64})]", "") == SOURCE
    assert "tuned=[(True, {'BLOCK': 1})]" in write_tuned(SOURCE, "fixed", [(True, {"BLOCK": 1})])
    with pytest.raises(KeyError):
        write_tuned(SOURCE, "absent", [])


def judged(times: dict[tuple[int, int], float], wrong: set[tuple[int, int]] = frozenset()) -> Any:  # type: ignore[assignment]
    """A judge with a fixed table of times in place of a GPU: what is tested is the search, not a figure."""

    def judge(overrides: Mapping[str, Mapping[str, Any]]) -> Report:
        key = (overrides["rows"]["BLOCK"], overrides["rows"]["VEC"])
        status = Status.WRONG if key in wrong else Status.VERIFIED
        times_ms = {"candidate": times.get(key, 9.0)}
        return Report("t", "c", status, Verdict.UNCLEAR, "quick", "test", times_ms=times_ms)

    return judge


def test_the_fastest_right_configuration_wins() -> None:
    """A wrong configuration is never chosen however fast; the winner is a new candidate with its parent recorded."""
    candidate = Candidate("m.py", {"m.py": SOURCE})
    judge = judged({(256, 4): 3.0, (512, 1): 2.0, (128, 4): 1.0}, wrong={(128, 4)})
    tuned, table = tune(None, candidate, None, None, 10.0, judge=judge)  # type: ignore[arg-type]
    assert "tuned=[(True, {'BLOCK': 512, 'VEC': 1})]" in tuned.files["m.py"]
    assert tuned.parent == candidate.digest and tuned.digest != candidate.digest
    assert len(table) == 6 and table[0].constants == {"BLOCK": 256, "VEC": 4}
    assert next(row for row in table if row.constants == {"BLOCK": 128, "VEC": 4}).ms is None


def test_where_nothing_beats_the_declared_constants_they_stay() -> None:
    """No gain, no new candidate; and no budget, nothing but the declared configuration."""
    candidate = Candidate("m.py", {"m.py": SOURCE})
    tuned, table = tune(None, candidate, None, None, 10.0, judge=judged({(256, 4): 1.0}))  # type: ignore[arg-type]
    assert tuned is candidate and len(table) == 6
    _, table = tune(None, candidate, None, None, -1.0, judge=judged({}))  # type: ignore[arg-type]
    assert len(table) == 1
