"""Figures on source lines, and two versions of a source side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kforge.kernel.emulator.access import Access
from kforge.profiling.annotate.difference import Tag, aligned, common_metric, difference, rendered
from kforge.profiling.annotate.lines import METRICS, Annotated, LineFacts, annotate
from kforge.profiling.evidence import Evidence, KernelEvidence, Sampled, from_json

FIXTURES = Path(__file__).parent / "fixtures"
FAULTS = Path(__file__).parents[1] / "gpu" / "faults"


def _recorded(name: str) -> Annotated:
    evidence = from_json(Evidence, json.loads((FIXTURES / f"{name}.json").read_text()))
    (found,) = annotate(evidence).values()
    return found


def test_a_recorded_profile_puts_conflicts_on_their_line() -> None:
    """The line that reads the tile's columns passes 32 times over it, and is the hottest of that metric."""
    found = _recorded("bank_conflicts_fault")
    assert found.file == "bank_conflicts.cu"
    assert found.value(9, "conflicts") == pytest.approx(32.0)
    assert found.hottest("conflicts")[0] == 9
    assert found.text(9, "conflicts") == "32x" and found.text(1, "conflicts") == ""
    assert {"conflicts", "instructions", "excess", "width"} <= set(found.metrics)
    assert list(found.metrics) == [m for m in METRICS if m in found.metrics]


def test_samples_executions_and_stalls_of_a_line() -> None:
    """Samples of a line's instructions add up to its share; the stall is the commonest; instructions stay listed."""
    rows = (
        Sampled("k.cu", 4, 16, "LDG.E R1", 60, {"long_scoreboard": 50, "selected": 10}, 100),
        Sampled("k.cu", 4, 32, "FADD R1", 20, {"wait": 20}, 100),
        Sampled("k.cu", 6, 48, "STG.E R1", 20, {"drain": 20}, 90),
        Sampled("", 0, 64, "EXIT", 0, {}, 90),
    )
    access = (Access("k.cu", 4, "global", "read", 4, 3200, 12800, 100, 800, 400),)
    evidence = Evidence("t", "d", "g", "sm_90a", 132, kernels=(KernelEvidence("k", sampled=rows, access=access),))
    found = annotate(evidence)["k.cu"]
    assert found.lines[4].values == {"excess": 2.0, "sectors": 8.0, "bytes": 12800, "samples": 0.8, "executed": 100}
    assert found.lines[4].stall == "long_scoreboard" and found.lines[6].stall == "drain"
    assert [row.text for row in found.lines[4].sass] == ["LDG.E R1", "FADD R1"]
    assert found.text(4, "samples") == "80.0%" and found.hottest("samples") == [4, 6]
    assert set(found.lines) == {4, 6}


def test_instructions_are_shown_under_the_hottest_lines_only() -> None:
    """Samples, the reason, how often it ran and the sectors each time; a cool line keeps its instructions to itself."""
    from kforge.cli.profile_text import source

    rows = tuple(
        Sampled("k.cu", line, 16 * line, f"OP{line}", samples, {"wait": samples}, 100, 3200, 400, 400)
        for line, samples in ((1, 50), (2, 30), (3, 15), (4, 5))
    )
    kernel = KernelEvidence("k", sampled=rows)
    found = annotate(Evidence("t", "d", "g", "sm_90a", 132, kernels=(kernel,)))["k.cu"]
    assert found.lines[1].sass[0].sectors == 4.0
    text = source(found, "a\nb\nc\nd", "samples", sass=True)
    below = [line.split() for line in text.splitlines() if " OP" in line]
    assert below[0] == ["50", "wait", "x100", "4/run", "0010", "OP1"]
    assert [row[-1] for row in below] == ["OP1", "OP2", "OP3"]
    assert " OP" not in source(found, "a\nb\nc\nd", "samples")


def test_lines_that_both_versions_have_are_aligned() -> None:
    """An inserted line shifts what follows."""
    assert aligned(["a", "b", "c"], ["a", "x", "b", "c"]) == {1: 1, 2: 3, 3: 4}


def test_the_difference_of_two_recorded_twins() -> None:
    """An unchanged line is shown when its figure changed: the passes over the tile fall from 32 to 1."""
    source = (FAULTS / "bank_conflicts.cu").read_text()
    before, after = _recorded("bank_conflicts_fault"), _recorded("bank_conflicts_good")
    rows = difference(source, source, before, after, "conflicts")
    changed = [r for r in rows if r.tag is Tag.SAME and r.before != r.after]
    assert [(r.old, r.new, r.before, r.after) for r in changed] == [(9, 9, pytest.approx(32.0), pytest.approx(1.0))]
    text = "\n".join(rendered(rows, "conflicts"))
    assert "     32x       1x" in text and "tile[threadIdx.x][k]" in text


def test_a_unified_diff_with_figures() -> None:
    """Removed lines have a figure before, added ones after, far lines are left out behind a hunk's head."""
    old = "\n".join(f"line {i}" for i in range(1, 21))
    new = old.replace("line 10", "line ten")
    before = Annotated("k.cu", "a", ("excess",), {10: LineFacts({"excess": 8.0})})
    after = Annotated("k.cu", "b", ("excess",), {10: LineFacts({"excess": 1.0})})
    rows = difference(old, new, before, after, "excess", context=1)
    assert [(r.tag, r.text) for r in rows] == [
        (Tag.HUNK, "@@ -9 +9 @@"),
        (Tag.SAME, "line 9"),
        (Tag.OLD, "line 10"),
        (Tag.NEW, "line ten"),
        (Tag.SAME, "line 11"),
    ]
    assert (rows[2].before, rows[3].after) == (8.0, 1.0)
    assert difference(old, old, before, before, "excess") == []


def test_the_metric_of_a_diff_is_one_that_both_sides_have() -> None:
    """The most telling common one; with one side only, its own; with none, none."""
    one = Annotated("k.cu", "a", ("samples", "excess", "instructions"), {})
    two = Annotated("k.cu", "b", ("excess", "instructions"), {})
    assert common_metric(one, two) == "excess"
    assert common_metric(None, two) == "excess" and common_metric(one, None) == "samples"
    assert common_metric(None, None) is None


def test_a_diff_without_figures_is_a_plain_one() -> None:
    """No metric, no columns."""
    assert rendered(difference("a\nb", "a\nc", None, None, None), None) == ["@@ -1 +1 @@", " a", "-b", "+c"]
