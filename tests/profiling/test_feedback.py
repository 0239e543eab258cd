"""The feedback operator: at most three findings, ranked by gain and record; none and raw for comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kforge.profiling.analysis import Affinity, Finding, Severity
from kforge.profiling.evidence import Evidence, from_json
from kforge.profiling.feedback import Mode, feedback, gain_text, rank, record, trust_in
from kforge.store.index import Index, LedgerRow

FIXTURES = Path(__file__).parent / "fixtures"


def _finding(tool: str, low: float, high: float, severity: Severity = Severity.MAJOR) -> Finding:
    return Finding(tool, "k", severity, f"{tool} title", ("fact",), "why", ("do this",), (low, high), Affinity.ALL)


def _evidence() -> Evidence:
    return from_json(Evidence, json.loads((FIXTURES / "bank_conflicts_fault.json").read_text()))


def test_larger_gains_come_first_and_stop_before_all() -> None:
    """By the middle of the range; what says that nothing is left leads."""
    order = rank([_finding("a", 1.0, 1.2), _finding("b", 1.5, 3.0), _finding("c", 1.0, 1.1, Severity.STOP)])
    assert [r.finding.tool for r in order] == ["c", "b", "a"]


def test_a_tool_whose_advice_keeps_failing_sinks() -> None:
    """Ten followed advices that gained nothing put a tool behind one that promises less."""
    findings = [_finding("boaster", 1.5, 2.5), _finding("modest", 1.2, 1.6)]
    assert [r.finding.tool for r in rank(findings)] == ["boaster", "modest"]
    failed = [LedgerRow("boaster", 10, 10, expected=2.0, achieved=1.0)]
    assert [r.finding.tool for r in rank(findings, failed)] == ["modest", "boaster"]


@pytest.mark.parametrize(
    ("row", "trust"),
    [
        (None, 1.0),
        (LedgerRow("t", 4, 0, None, None), 1.0),
        (LedgerRow("t", 3, 3, 2.0, 2.0), 1.0),
        (LedgerRow("t", 3, 3, 2.0, 1.0), 0.5),
        (LedgerRow("t", 3, 3, 2.0, 0.0), 0.5),
        (LedgerRow("t", 3, 3, 2.0, 9.0), 1.25),
    ],
)
def test_trust_is_achieved_over_expected_drawn_to_one(row: LedgerRow | None, trust: float) -> None:
    """Three followed advices weigh as much as the credit; a failure counts as no gain; luck is capped."""
    assert trust_in(row) == pytest.approx(trust)


def test_at_most_three_of_different_tools() -> None:
    """The same tool on two kernels takes one place; what is left out is counted."""
    found = rank(
        [_finding("a", 1, 2), replace(_finding("a", 1, 3), kernel="other"), *(_finding(n, 1, 1.5) for n in "bcd")]
    )
    assert [r.finding.tool for r in found] == ["a", "b", "c", "d"]
    assert found[0].finding.kernel == "other"


def test_tools_mode_gives_text_and_data() -> None:
    """The model's text names tool's title, line, cause, advice and range; the data holds the same findings."""
    told = feedback(_evidence())
    text = told.for_model()
    assert 1 <= len(told.findings) <= 3
    assert "bank conflicts in shared memory in fault (at bank_conflicts.cu:9)" in text
    assert "tile[32][33]" in text and "expected: 1.05x" in text
    data = told.as_dict()
    assert data["mode"] == "tools" and "counters" not in data
    assert [f["tool"] for f in data["findings"]] == [r.finding.tool for r in told.findings]
    json.dumps(data)


def test_the_ablation_none_and_raw() -> None:
    """none says nothing at all; raw dumps numbers without a word of advice."""
    assert feedback(_evidence(), Mode.NONE).for_model() == ""
    raw = feedback(_evidence(), Mode.RAW)
    assert not raw.findings
    assert "fault registers = " in raw.for_model() and "padded" not in raw.for_model()
    assert raw.as_dict()["counters"]


def test_the_record_of_an_advice_lives_in_the_run_index(tmp_path: Path) -> None:
    """What was expected and achieved comes back a tool, and changes the trust in it."""
    with Index(tmp_path / "index.sqlite") as index:
        index.start_run("r1", "op.py", tmp_path)
        for achieved in (1.1, 0.0, None):
            record(index, "r1", _finding("tiling", 1.5, 2.5), parent="p", child="c", achieved=achieved)
        (row,) = index.ledger()
    assert (row.source, row.times_followed, row.times_timed) == ("tiling", 3, 2)
    assert row.expected == pytest.approx(2.0) and row.achieved == pytest.approx(0.55)
    assert trust_in(row) == pytest.approx(3 / 5)


def test_a_range_in_words() -> None:
    """A stop promises nothing, a range both ends, a point one."""
    assert gain_text(_finding("a", 1.0, 1.0, Severity.STOP)) == "nothing more"
    assert gain_text(_finding("a", 1.0, 1.1, Severity.STOP)) == "at most 1.10x more"
    assert gain_text(_finding("a", 1.1, 1.5)) == "1.10x to 1.50x"
    assert gain_text(_finding("a", 1.2, 1.2)) == "1.20x"
