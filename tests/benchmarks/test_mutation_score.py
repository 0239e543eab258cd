"""The benchmark of planted mistakes: what a later look at the survivors alone makes of an earlier run's counts."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks import mutation_score
from kforge.environment.mutation.results import MutationReport, Outcome, Trial, rows


def _trial(task: str, operator: str, outcome: Outcome, by: str = "standard") -> Trial:
    return Trial(task, "k", operator, "a.cu", 3, f"{operator} before", "after", "", "", outcome, "verified", by)


def test_survivors_that_are_tried_again_change_every_row_that_they_stand_in() -> None:
    """One is caught now, one survives, one's line is gone: its operator's row, its kernel's and the sum agree."""
    old = [
        _trial("scan", "tail", Outcome.CAUGHT),
        *(_trial("scan", name, Outcome.SURVIVED) for name in ("sign", "warp", "tail")),
    ]
    base = {
        "by_operator": rows(old, "operator"),
        "by_kernel": [rows(old, "task")[-1] | {"task": "scan"}],
        "caught_by": {"quick": 0, "standard": 1},
        "survivors": [asdict(t) for t in old[1:]],
        "equivalent": [],
    }
    new = (_trial("scan", "sign", Outcome.CAUGHT, "quick"), _trial("scan", "warp", Outcome.SURVIVED))
    found = mutation_score.tried_again(base, {"scan": MutationReport("scan", "c", "standard", {}, new, {})})
    counts = {row["operator"]: (row["caught"], row["survived"], row["score"]) for row in found["by_operator"]}
    assert counts == {
        "sign": (1, 0, 1.0),
        "tail": (1, 0, 1.0),
        "warp": (0, 1, 0.0),
        "all": (2, 1, pytest.approx(2 / 3)),
    }
    (kernel,) = found["by_kernel"]
    assert (kernel["caught"], kernel["survived"]) == (2, 1)
    assert [t["operator"] for t in found["survivors"]] == ["warp"] and [t["operator"] for t in found["gone"]] == [
        "tail"
    ]
    assert found["caught_by"] == {"quick": 1, "standard": 1}


def test_the_recorded_score_is_the_sum_of_its_rows() -> None:
    """Over operators and over kernels the same counts, at least 12 kernels, and the goal of 98 %."""
    import json

    found = json.loads(mutation_score.RESULT.read_text())
    *operators, whole = found["by_operator"]
    for name in ("caught", "survived", "not_compiled", "equivalent"):
        assert whole[name] == sum(row[name] for row in operators) == sum(row[name] for row in found["by_kernel"])
    assert len(found["by_kernel"]) >= 12 and whole["score"] >= 0.98
