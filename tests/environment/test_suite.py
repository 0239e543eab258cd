"""Suites: which pairs a folder holds, figures over many results, and what counts as worse than an earlier run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from kforge.environment import regression
from kforge.environment.report import Gate, Report, Speedup, Status, Verdict
from kforge.environment.suite import Row, find_pairs, statistics
from kforge.errors import UsageError


def _report(ratio: float | None, status: str = "verified", target: str = "GPU", half: float = 0.01) -> Report:
    """A report with this speed-up over eager, its interval +- half, noise 1 %."""
    speedup = None if ratio is None else Speedup("eager", ratio, (ratio - half, ratio + half), 0.01)
    verdict = Verdict.UNTIMED if ratio is None else Verdict.FASTER if ratio > 1.02 else Verdict.SAME
    times = {} if ratio is None else {"candidate": 1.0, "eager": ratio, "compile_default": ratio / 2}
    gates = () if status == "verified" else (Gate("correctness", False, "row 3 differs\nmore"),)
    return Report("t", "0" * 16, Status(status), verdict, "quick", target, speedup=speedup, times_ms=times, gates=gates)


def _row(name: str, ratio: float | None = None, group: str = "", **report: object) -> Row:
    return Row(name, group, "local", _report(ratio, **report))  # type: ignore[arg-type]


def test_pairs_of_a_folder(tmp_path: Path) -> None:
    """Both layouts are found at any depth, folders above a pair are its class, hidden folders are left out."""
    for name in (
        "gelu.py", "gelu_kforge.py", "norms/softmax.py", "norms/softmax_kforge.py", "norms/rms/op.py",
        "norms/rms/best_kforge.py", "two/op.py", "two/a_kforge.py", "two/b_kforge.py", ".kforge/x_kforge.py",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = {(p.name, p.group, p.op.relative_to(tmp_path).as_posix()) for p in find_pairs(tmp_path)}
    assert found == {
        ("gelu", "", "gelu.py"),
        ("norms/softmax", "norms", "norms/softmax.py"),
        ("norms/rms", "norms", "norms/rms/op.py"),
        ("two/a", "", "two/op.py"),
        ("two/b", "", "two/op.py"),
    }
    (tmp_path / "lonely_kforge.py").write_text("")
    with pytest.raises(UsageError, match=r"lonely_kforge\.py has no task"):
        find_pairs(tmp_path)
    with pytest.raises(UsageError, match="holds no"):
        find_pairs(tmp_path / ".kforge" / "nothing")


def test_figures() -> None:
    """Geometric mean and median are those of the timed, verified results; the share outside noise counts verdicts;
    classes have figures of their own."""
    rows = [
        _row("a", 2.0, "x"), _row("b", 1.0, "x"), _row("c", 4.0, "y"), _row("d", None, "y"),
        _row("e", None, "y", status="wrong"), Row("f", "y", error="no such task"),
    ]  # fmt: skip
    figures = statistics(rows)
    assert set(figures) == {"all", "x", "y"}
    everything = figures["all"]
    assert (everything["count"], everything["verified"], everything["timed"]) == (6, 4, 3)
    assert everything["geomean"] == pytest.approx(2.0) and everything["median"] == 2.0
    assert everything["outside_noise"] == pytest.approx(2 / 3)
    assert everything["geomean_over_compile_default"] == pytest.approx(1.0)
    assert everything["statuses"] == {"verified": 4, "wrong": 1, "error": 1}
    assert figures["x"]["geomean"] == pytest.approx(math.sqrt(2))
    assert "geomean" not in statistics([_row("d")])["all"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved run of a, b, c, d: 2x, 1.5x, 1x on GPU, and one that was wrong."""
    path = tmp_path / "baseline.json"
    rows = [_row("a", 2.0), _row("b", 1.5), _row("c", 1.0), _row("d", status="wrong")]
    regression.save(path, rows, {"suite": "s"})
    return path


def test_the_same_results_are_no_change(saved: Path) -> None:
    """A run compared with itself, and one that differs within interval and noise, show no change."""
    before = regression.load(saved)
    assert regression.compare(before, [_row("a", 2.0), _row("b", 1.5), _row("c", 1.0), _row("d", status="wrong")]) == []
    assert (
        regression.compare(before, [_row("a", 1.98), _row("b", 1.51), _row("c", 1.0), _row("d", status="wrong")]) == []
    )


def test_what_became_worse(saved: Path) -> None:
    """A slower candidate and one that is no longer verified are regressions; a faster, a missing, a new one are not."""
    rows = [_row("a", 1.6), _row("b", None, status="wrong"), _row("d", 1.2), _row("e", 1.0)]
    changes = {c.name: c for c in regression.compare(regression.load(saved), rows)}
    assert {name: c.kind for name, c in changes.items()} == {
        "a": "slowdown", "b": "status", "c": "missing", "e": "new",
    }  # fmt: skip
    assert [name for name, c in changes.items() if c.regression] == ["a", "b"]
    assert changes["a"].detail == "2.000x over eager -> 1.600x over eager (candidate 1 -> 1 ms, eager 2 -> 1.6 ms)"
    assert changes["b"].detail == "verified -> wrong: row 3 differs"


def test_a_candidate_that_is_no_longer_timed(saved: Path) -> None:
    """Verified on the same GPU but without a time where there was one: a gate must not pass on what it did not see."""
    (change,) = [c for c in regression.compare(regression.load(saved), [_row("a")]) if c.name == "a"]
    assert change.kind == "status" and "was timed" in change.detail


def test_another_gpu(saved: Path) -> None:
    """On another target speeds are not compared, statuses are."""
    before = regression.load(saved)
    elsewhere = {c.name: c for c in regression.compare(before, [_row("a", 1.0, target="other")])}
    assert elsewhere["a"].kind == "elsewhere" and not elsewhere["a"].regression
    worse = {c.name: c for c in regression.compare(before, [_row("a", None, status="wrong", target="emulator")])}
    assert worse["a"].kind == "status"


def test_what_is_no_saved_run(tmp_path: Path) -> None:
    """A missing file, one that is no run and one of a newer version are usage errors."""
    path = tmp_path / "x.json"
    with pytest.raises(UsageError, match="no such file"):
        regression.load(path)
    for text, words in (("[]", "not a saved run"), ('{"schema": 1, "entries": [{}]}', "not a saved run")):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            regression.load(path)
    path.write_text(json.dumps({"schema": regression.SCHEMA + 1, "entries": []}))
    with pytest.raises(UsageError, match="this version reads up to"):
        regression.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "fine"},
        {"speedup": {"vs": "eager", "ratio": 0.0, "ci95": [0.0, 1.0], "noise": 0.01}},
        {"speedup": {"vs": "eager", "ratio": float("nan"), "ci95": [1.0, 1.0], "noise": 0.01}},
        {"speedup": {"vs": "eager", "ratio": 2.0, "ci95": [1.9, 2.1], "noise": float("inf")}},
    ],
)
def test_an_entry_that_no_run_can_have_written(saved: Path, change: dict[str, object]) -> None:
    """A gate that would pass whatever comes, or fail in its arithmetic after all the work, is refused before it."""
    data = json.loads(saved.read_text())
    data["entries"][0] |= change
    saved.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="not a saved run"):
        regression.load(saved)


def test_a_place_that_takes_no_file_is_found_before_the_work(tmp_path: Path) -> None:
    """A folder, and a name below a file; a place that will do is left as it was."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "run.json"):
        with pytest.raises(UsageError, match=r"is a folder|cannot be written"):
            regression.check_path(path)
    regression.check_path(tmp_path / "new" / "run.json")
    assert list((tmp_path / "new").iterdir()) == []
