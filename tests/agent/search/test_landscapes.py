"""Recorded landscapes and their replay: the tables are those of the results, and a replay adds nothing to them."""

from __future__ import annotations

import json
import math
import random
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.landscapes.from_results import by_engine, by_engine_schedules, by_hand, point
from benchmarks.record_landscapes import append, configurations, known, name, place
from benchmarks.strategies import (
    LANDSCAPES,
    Landscape,
    Point,
    geometric,
    interval,
    picture,
    run,
    strategies,
    summarise,
)
from kforge.environment.tuning import Space

TABLE = Landscape(
    "toy",
    "by hand",
    "none",
    tuple(Point(f, {"A": a, "B": b}, None if (f, a) == ("y", 3) else 1 + a * b + (f == "y"))
          for f in "xy" for a in range(4) for b in (1, 2)),
)  # fmt: skip


def test_names_of_recorded_kernels() -> None:
    """The names in the results are taken apart as their meta.json says."""
    assert point("split_registers", "split_row<256, 8, 4> K=48") == (
        "split_row", {"BLOCK": 256, "VECTORS": 8, "RESIDENT": 4, "K": 48})  # fmt: skip
    assert point("clusters", "cluster_row<512, 1, 2, 1>")[1] == {
        "BLOCK": 512, "VECTORS": 1, "CLUSTER": 2, "STAGED": 1, "HINTS": 0}  # fmt: skip
    assert point("rows", "256,2,1") == ("", {"BLOCK": 256, "VECTORS": 2, "HINTS": 1})


def test_tables_are_those_of_the_results() -> None:
    """Every committed table with a source among the results is what the results hold now, point by point."""
    tables = (*by_hand(), *by_engine(), *by_engine_schedules())
    made = {f"{table['workload']} ({table['kernels']})": table for table in tables}
    committed = [json.loads(path.read_text()) for path in sorted(LANDSCAPES.glob("recorded-*.json"))]
    for table in committed:
        assert table["points"] == made[f"{table['workload']} ({table['kernels']})"]["points"]
        assert table["chip"] == "NVIDIA H200"
        assert all((LANDSCAPES.parent / source).is_file() for source in table["sources"])
        assert len({name(p) for p in table["points"]}) == len(table["points"]) >= 3, "no candidate twice"
    assert len({table["workload"] for table in committed if table["kernels"] == "engine"}) >= 12


@pytest.mark.parametrize("strategy", [name for name in strategies(8) if name not in {"greedy", "beam"}])
def test_replay_of_the_whole_table_finds_its_best(strategy: str) -> None:
    """With as many evaluations as candidates nothing can be missed, and the curve never falls."""
    curve = run(TABLE, strategies(16)[strategy](), 5, 16)
    assert len(curve) == 16 and curve[-1] == 1.0
    assert curve == sorted(curve)


@pytest.mark.parametrize("strategy", strategies(8))
def test_replay_is_the_seeds(strategy: str) -> None:
    """The same seed gives the same curve; every share is one that the table holds."""
    one = run(TABLE, strategies(8)[strategy](), 3, 8)
    assert one == run(TABLE, strategies(8)[strategy](), 3, 8)
    shares = {TABLE.best / p.ms for p in TABLE.points if p.ms is not None} | {0.0}
    assert set(one) <= shares


def test_the_recorded_comparison_is_of_these_tables(root: Path) -> None:
    """results/strategies.json was made from the tables that are committed, and docs/search.md quotes it as it is."""
    result = json.loads((root / "benchmarks" / "results" / "strategies.json").read_text())
    tables = [Landscape.read(path) for path in sorted(LANDSCAPES.glob("*.json"))]
    assert result["tables"] == {
        t.name: {"candidates": len(t.points), "best_ms": t.best, "median_ms": t.median} for t in tables
    }
    lines = (root / "docs" / "search.md").read_text().splitlines()
    quotes = {"engine's tables": ("1", "2", "4", "8", "16"), "24 candidates or more": ("1", "4", "8", "16", "32")}
    for strategy, rows in result["strategies"].items():
        label = "best of n, n the budget" if strategy == "best_of_n" else strategy
        quoted = [line for line in lines if line.startswith(f"| {label} |")]
        assert len(quoted) == len(quotes)
        for line, (group, budgets) in zip(quoted, quotes.items(), strict=True):
            cells = [float(cell.split()[0]) for cell in line.split("|")[2:-1]]
            assert cells == pytest.approx([rows[group][budget]["share"] for budget in budgets], abs=0.0006)


def test_arithmetic() -> None:
    """Geometric mean, bootstrap interval and summary by hand; nothing found counts as a thousandth."""
    assert geometric([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric([0.0, 1.0]) == pytest.approx(math.sqrt(1e-3))
    assert interval([0.7] * 5, random.Random(0)) == pytest.approx((0.7, 0.7))
    low, high = interval([0.0, 1.0] * 50, random.Random(0))
    assert low == pytest.approx(0.4, abs=0.03) and high == pytest.approx(0.6, abs=0.03)  # 0.5 +- 1.96 * 0.05
    rows = summarise({"t": [[0.5, 1.0], [0.5, 0.8]], "u": [[0.5, 1.0], [0.5, 0.8]]}, 2)
    assert rows["1"] == {"share": 0.5, "ci95": [0.5, 0.5]} and rows["2"]["share"] == 0.9


def test_picture_is_svg() -> None:
    """Six curves, well-formed, with names of strategies as text."""
    rows = {"1": {"share": 0.8, "ci95": [0.7, 0.9]}, "4": {"share": 0.9, "ci95": [0.85, 0.95]}}
    text = picture({"title": "a < b", "strategies": {name: {"all": rows} for name in strategies(4)}})
    tree = ET.fromstring(text)
    lines = [element for element in tree if element.tag.endswith("polyline")]
    words = [element.text for element in tree if element.tag.endswith("text")]
    assert len(lines) == 6 and {"hybrid", "mcts", "beam"} <= set(words)


def test_configurations_of_a_tuning_space() -> None:
    """A small space is tried whole, the declared constants left out; a large one changes one constant at a time."""
    small = Space("k", {"A": 1, "B": 1}, {"A": (1, 2), "B": (1, 2, 3)})
    tried = list(configurations([small], 0))
    assert len(tried) == 5 and {"k": {"A": 1, "B": 1}} not in tried and {"k": {"A": 2, "B": 3}} in tried
    large = Space("k", {"A": 0, "B": 0}, {"A": tuple(range(5)), "B": tuple(range(6))})
    tried = list(configurations([large], 0))
    assert len(tried) == 4 + 5
    assert all(sum(value != 0 for value in overrides["k"].values()) == 1 for overrides in tried)


def test_appending_to_a_table(tmp_path: Path) -> None:
    """Points are added one by one, the head of the first stays, and what is known can be asked for."""
    path = place(tmp_path, "NVIDIA H200", "softmax", [64, 1024])
    assert path.name == "h200-softmax-64x1024.json" and known(path) == set()
    first, second = ({"family": f, "schedule": {"A": 1}, "ms": 1.0} for f in ("x", "y"))
    append(path, {"chip": "NVIDIA H200", "workload": "softmax", "kernels": "engine"}, first)
    append(path, {"chip": "another"}, second)
    assert json.loads(path.read_text())["points"] == [first, second]
    assert known(path) == {name(first), name(second)}
    read = Landscape.read(path)
    assert (read.chip, read.best, len(read.points)) == ("NVIDIA H200", 1.0, 2)
