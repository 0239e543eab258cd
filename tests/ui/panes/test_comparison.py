"""What the core answers to `hunks`: figures and findings at their lines, and op.py's lines beside the kernel's."""

from __future__ import annotations

import json
from typing import Any

from kforge.agent.comparison import comparison, correspondence
from kforge.agent.hunks import hunks
from kforge.kernel.candidate import Candidate

OP = "import torch\n\ndef reference(x):\n    m = x.amax(-1)\n    return torch.exp(x - m)\n"
KERNEL = """\
// op: kernels of op.py.
//      4  m = x.amax(-1)

__global__ void k(const float* x) {
    // maximum over the row (op.py:4)
    float m = 0;
    for (int i = 0; i < 4; ++i) {
        m = fmaxf(m, x[i]);
    }

    // the result (op.py:5)
    const float d = x[0] - m;  // op.py:5
    store(d);
}
"""


def _candidate(kernel: str, parent: str | None = None) -> Candidate:
    return Candidate("op_kforge.py", {"op_kforge.py": "class ModelNew: ...\n", "op_kforge.cu": kernel}, parent=parent)


def _profile(excess: dict[int, float], place: int | None = None) -> dict[str, Any]:
    lines = {str(n): {"values": {"excess": v, "instructions": 3}} for n, v in excess.items()}
    places = [["op_kforge.cu", place]] if place else []
    finding = {"title": "scattered loads", "evidence": ["4 of 32 bytes"], "severity": "major", "places": places}
    return {
        "findings": [finding] if place else [],
        "lines": {"op_kforge.cu": {"file": "op_kforge.cu", "metrics": ["excess", "instructions"], "lines": lines}},
    }


def test_related_versions_have_hunks_figures_and_findings() -> None:
    """Equal hunks with equal ids as `hunks` finds, each with the findings near it; figures by metric, side and line."""
    old = _candidate(KERNEL)
    new = _candidate(KERNEL.replace("fmaxf(m, x[i])", "max4(m, x + i)"), old.digest)
    found = comparison(new, old, ("op.py", OP), _profile({8: 4.0}, place=8), _profile({8: 1.0}))
    assert json.loads(json.dumps(found)) == found
    assert found["related"] and found["pairs"] == [] and found["metrics"] == ["excess", "instructions"]
    (file,) = [f for f in found["files"] if f["file"] == "op_kforge.cu"]
    assert [h["id"] for h in file["hunks"]] == [h.id for h in hunks(old.files, new.files)]
    assert file["figures"]["excess"] == {"old": {"8": 4.0}, "new": {"8": 1.0}}
    (note,) = file["hunks"][0]["notes"]
    assert note == {"line": 8, "side": "old", "text": "scattered loads: 4 of 32 bytes", "severity": "major"}


def test_one_fact_a_line() -> None:
    """Beside a line stands the fact that names it, without the place; otherwise the first that names none."""
    old, new = _candidate(KERNEL), _candidate(KERNEL + "\n")
    profile = _profile({8: 4.0})
    facts = ["4 times the sectors", "op_kforge.cu:8 reads 16 sectors", "op_kforge.cu:80 writes 2"]
    places = [["op_kforge.cu", 8], ["op_kforge.cu", 12]]
    profile["findings"] = [{"title": "scattered", "evidence": facts, "severity": "major", "places": places}]
    found = comparison(new, old, ("op.py", OP), None, profile)
    (file,) = [f for f in found["files"] if f["file"] == "op_kforge.cu"]
    assert [(n["line"], n["text"]) for n in file["notes"]] == [
        (8, "scattered: reads 16 sectors"), (12, "scattered: 4 times the sectors"),
    ]  # fmt: skip


def test_metrics_of_both_sides_come_first() -> None:
    """A figure that only one version has can be shown, but is not the first choice."""
    old, new = _candidate(KERNEL), _candidate(KERNEL + "\n")
    one_sided = _profile({8: 1.0})
    del one_sided["lines"]["op_kforge.cu"]["lines"]["8"]["values"]["excess"]
    one_sided["lines"]["op_kforge.cu"]["metrics"] = ["instructions"]
    assert comparison(new, old, ("op.py", OP), _profile({8: 1.0}), one_sided)["metrics"] == ["instructions", "excess"]


def test_a_rewrite_has_no_hunks() -> None:
    """Against op.py and against another family there are pairs of lines instead, and the whole new texts."""
    other = Candidate("op_kforge.py", {"op_kforge.py": "x = 1\n", "op_kforge.cu": "int a;\nint b;\n"})
    for against in (None, other):
        found = comparison(_candidate(KERNEL), against, ("op.py", OP))
        assert not found["related"]
        assert all(file["hunks"] == [] and file["old"] is None for file in found["files"])
        assert found["reference"] == {"name": "op.py", "text": OP}
        assert [(p["first"], p["last"]) for p in found["pairs"]] == [(4, 4), (5, 5)]


def test_correspondence_reads_origin_comments() -> None:
    """A comment behind code means its line, one alone what follows it; lines of the graph have a pair anyhow."""
    pairs = correspondence("op.py", OP, {"op_kforge.cu": KERNEL}, origins=[4, 5, 3])
    assert [(p.first, p.kernels) for p in pairs] == [
        (3, ()),
        (4, (("op_kforge.cu", 5, 9),)),
        (5, (("op_kforge.cu", 11, 13), ("op_kforge.cu", 12, 12))),
    ]


def test_hostile_origin_comments_are_left_out() -> None:
    """Lines that op.py does not have, other files' lines and reversed ranges pair nothing."""
    text = "int a; // op.py:400\nint b; // other.py:4\nint c; // op.py:5-4\nint d; // op.py:4-5\nint e; // op.py:0\n"
    pairs = correspondence("op.py", OP, {"k.cu": text})
    assert [(p.first, p.last, p.kernels) for p in pairs] == [(4, 5, (("k.cu", 4, 4),))]
