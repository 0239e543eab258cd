"""The benchmark of false rejections: fresh seeds over what was built once, rows that a later run counts on from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import false_rejections


def test_evaluations_have_seeds_of_their_own_and_are_counted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two evaluations of one kernel, the second without a build; a mended row counts nowhere; a later run adds one."""
    out, builds = tmp_path / "found.json", tmp_path / "builds"
    monkeypatch.setattr(false_rejections, "BUILDS", builds)

    def run(count: int) -> dict[str, object]:
        words = ["x", "--plan", "quick", "--extras", "1", "--only", "tests/affine", "--count", str(count)]
        monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
        assert false_rejections.main() == 0
        return dict(json.loads(out.read_text()))

    found = run(2)
    assert (found["evaluations"], found["rejected"], found["by_kernel"]) == (2, [], {"tests/affine": 2})
    rows = [json.loads(line) for line in out.with_suffix(".jsonl").read_text().splitlines()]
    assert [row["cases"] for row in rows] == [3, 3], "two required ones and an extra"
    assert len({row["entropy"] for row in rows}) == 2
    with out.with_suffix(".jsonl").open("a") as log:
        log.write(json.dumps(rows[0] | {"status": "wrong", "mended": "its strides"}) + "\n")
    found = run(3)
    assert found["evaluations"] == 3 and found["rejected"] == [] and len(found["mended_kernels"]) == 1  # type: ignore[arg-type]
