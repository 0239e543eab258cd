"""The rows of the benchmarks: a dry run writes what a table needs and goes on where it stopped; shards are disjoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import compute_rows, engine_digests, memory_rows, row_goals, row_why, rows


def test_dry_rows_are_written_once_and_tabulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows on the emulator: each is written once with kind, tries and error, and a second run adds none."""
    out = tmp_path / "rows.jsonl"
    arguments = ["--dry", "--candidates", "1", "--out", str(out), "diagonal_matmul", "outer"]
    memory_rows.main(arguments)
    found = {row["workload"]: row for row in rows.rows_in(out)}
    assert set(found) == {"diagonal_matmul", "outer"}
    for row in found.values():
        assert row["status"] == "dry" and row["tries"] == 1 and row["error"] < 1e-5, row
        assert row["best"] == {"5": None, "15": None, "60": None}, "nothing was timed"
        assert row["kernels"] and row["search_s"] > 0
    assert found["diagonal_matmul"]["kind"] == "rewritten", "no product is computed as one"
    assert found["outer"]["kind"] == "plain"
    assert "-- rewritten\ndiagonal_matmul" in capsys.readouterr().out
    memory_rows.main(arguments)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum("workload" in line for line in lines) == 2 and sum("environment" in line for line in lines) == 2


def test_shards_are_disjoint_and_whole() -> None:
    """The parts of a list have every name once."""
    parser = rows.parser_of("", "memory")
    parts = [rows.wanted(parser.parse_args(["--part", f"{k}/3"])) for k in (1, 2, 3)]
    names = [name for part in parts for name in part]
    assert sorted(names) == sorted(set(rows.wanted(parser.parse_args([])))) and len(set(names)) == len(names)


def test_an_unknown_workload_ends_the_run() -> None:
    """A name without a file is said, not skipped."""
    with pytest.raises(SystemExit, match="no such workload"):
        rows.wanted(argparse.Namespace(names=["nonesuch"], part="1/1", list=Path()))


def test_tables_of_recorded_rows(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows recorded on a GPU, those of before there were kinds among them, are tabulated with their means."""
    results = root / "benchmarks" / "results"
    memory_rows.main(["--table", "--out", str(results / "2026-11-30-h200-memory-bound" / "rows_1.jsonl")])
    assert "share: geomean" in capsys.readouterr().out
    compute_rows.main(["--table", "--out", str(results / "2026-11-30-h200-compute" / "rows-second.jsonl")])
    told = capsys.readouterr().out
    assert "rows: geomean" in told and " memory " in told
    assert "convolution, over the default layout" in told and "best layout" not in told
    assert "at the goal of 2.5: reached" in told


def test_goals_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """A goal counts the rows of its class that are plain or have an epilogue, over the ways of torch's it names."""
    ways = {"eager": 4.0, "eager_channels_last": 2.0, "ours0: a": 1.0}
    timed = {name: {"ms": ms, "own": [1.0, 1.0], "positive": [1.0, 1.0]} for name, ms in ways.items()}
    row = {"workload": "conv", "inputs": [], "class": row_goals.CONVOLUTION, "kind": "epilogue", "ways": timed}
    row_goals.summary([row, row | {"kind": "rewritten", "ways": {}}], compute_rows.gain_of)
    told = capsys.readouterr().out
    assert "best layout      geomean 2.00 median 2.00 of 1 rows" in told and "goal of 1.5: reached" in told
    assert "default layout   geomean 4.00" in told


def test_the_best_after_some_evaluations() -> None:
    """The columns tell the least time among so many tries, refused ones counted."""
    row = {"best": {"5": 0.5, "15": 0.25, "60": None}, "tries": 16, "search_s": 3.21}
    assert rows.best_columns(row) == "best 0.5000/0.2500/- of 16 in 3.2 s"


def test_a_profile_in_a_table() -> None:
    """A kernel's line tells what was measured of it alone; shares of waiting are of all waiting; a gap is named."""
    counters = {"stall_barrier": 1.0, "stall_long_scoreboard": 3.0, "stall_selected": 9.0, "stall_total": 4.0}
    assert row_why.waits(counters) == {"long_scoreboard": 0.75, "barrier": 0.25}
    kernel = {"name": "k", "registers": 40, "occupancy": 0.75, "us": 12.5, "dram": 61.2}
    profile = {"kernels": [kernel], "findings": [["slow", "k", ["a", "b"]]], "missing": []}
    assert row_why.lines(profile) == ["k: 40 registers, occupancy 0.75, 12.5 us, dram 61 %", "slow in k: a; b"]
    del kernel["dram"]
    profile["missing"] = [["ncu", "counters are denied"]]
    assert row_why.lines(profile)[-1] == "no counters: counters are denied"


def test_goals_of_memory_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """The summary has means in the end and on the way, rows under 0.85 with a reason, and who is slower."""
    row = {"workload": "near", "ms": 1.0, "floor_ms": 0.9, "share": 0.9, "speedup": 1.5, "interval": [1.4, 1.6]}
    row |= {"no_room": False, "no_room_s": None, "best": {"5": 1.8, "15": 1.0, "60": 1.0}}
    found = {"kernels": [], "findings": [["few loads in flight", "k", ["16 bytes"]]], "missing": []}
    far = row | {"workload": "far", "share": 0.4, "speedup": 0.9, "interval": [0.88, 0.92], "profile": found}
    full = row | {"workload": "full", "share": 1.0, "no_room": True, "no_room_s": 12.0, "interval": [0.98, 1.0]}
    memory_rows.summary([row, far, full, {"workload": "none", "status": "no_candidate"}])
    told = capsys.readouterr().out
    assert "4 rows, 3 with a kernel; share: geomean 0.711 median 0.900; 1 under 0.85" in told
    assert "after 5/15/60 tries: geomean 0.500/0.900/0.900" in told
    assert "  far 0.400: few loads in flight in k: 16 bytes\n" in told
    assert "1 rows without room, 1 known only after 10 s full" in told
    assert "1 slower than the fastest baseline far: 0.90x" in told


def test_profiles_take_so_many_seconds_a_row() -> None:
    """The first profile is free; a later one begins only where all of them stay within the seconds of all rows."""
    budget = row_why.Budget(seconds=5.0)
    budget.took(30.0)
    budget.rows = 1
    assert budget.allows()
    budget.took(8.0)
    assert not budget.allows()
    budget.rows = 4
    assert budget.allows()


def test_digests_tell_which_candidates_changed(tmp_path: Path) -> None:
    """The same engine gives the same digests; a name whose candidates differ, or are gone, is told."""
    out, again = tmp_path / "a.json", tmp_path / "b.json"
    assert engine_digests.main([str(out), "--only", "outer", "gelu"]) == 0
    assert engine_digests.main([str(again), "--like", str(out), "--only", "outer"]) == 0
    before = json.loads(out.read_text())
    assert before["outer"] and all(len(digest) > 8 for digest in before["outer"])
    changed = engine_digests.differing(before, {"outer": ["other"], "gelu": "no kernel", "new": ["x"]})
    assert [line.partition(":")[0] for line in changed] == ["gelu", "outer"]
