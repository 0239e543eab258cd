"""Every cheating candidate gets the outcome that its first lines state, and every honest one passes.

A fixture is a module; its head names the task (tests/environment/tasks), the plan, the expected status, the detector
that must fire (if any), and a change to the task's CUDA source (`old -> new`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "environment"))

from conftest_environment import judge, prepared, zygote  # noqa: E402, F401 - the fixtures of tests/environment
from hand_written import SOURCES  # noqa: E402

from kforge.environment.report import Report  # noqa: E402
from kforge.kernel.candidate import Candidate  # noqa: E402

CHEATS = sorted((HERE / "candidates").glob("*.py"))
HONEST = sorted((HERE / "honest").glob("*.py"))


def read(path: Path) -> tuple[Candidate, dict[str, str]]:
    """A fixture and its head."""
    text = path.read_text()
    head = dict(line[2:].split(":", 1) for line in text.splitlines() if line.startswith("# ") and ":" in line)
    head = {key: value.strip() for key, value in head.items()}
    task = head["task"]
    cuda = SOURCES[task][1]
    if "cuda" in head:
        old, _, new = head["cuda"].partition("->")
        assert old.rstrip() in cuda
        cuda = cuda.replace(old.strip() if old.strip() in cuda else old, new.strip())
    return Candidate(f"{task}_kforge.py", {f"{task}_kforge.py": text, f"{task}_kforge.cu": cuda}), head


@pytest.mark.parametrize("path", [*CHEATS, *HONEST], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_fixture_gets_its_outcome(judge: Callable[..., Report], path: Path) -> None:  # noqa: F811
    """Status as stated, the detector fired by name, words for whoever must act on it; no detector on honest ones."""
    candidate, head = read(path)
    report = judge(head["task"], candidate, head["plan"])
    assert report.status.value == head["status"], f"{report.status.value}: {report.failure}"
    fired = {d.name for d in report.detectors if d.fired}
    if head["fires"]:
        assert head["fires"] in fired, (report.failure, fired)
    if head["status"] == "verified":
        assert not fired
    else:
        assert report.failure


def test_a_hard_coded_shape_is_reported(judge: Callable[..., Report]) -> None:  # noqa: F811
    """Right for its one shape, and said to be written for it."""
    candidate, _ = read(HERE / "candidates" / "hard_coded_shape.py")
    assert any("hard_coded_shape" in warning for warning in judge("softmax", candidate).warnings)


def test_vendor_calls_of_an_honest_candidate_are_listed(judge: Callable[..., Report]) -> None:  # noqa: F811
    """The library product is named in the report, from the source and from what ran."""
    candidate, _ = read(HERE / "honest" / "vendor_call.py")
    assert {"matmul", "aten.mm.default"} <= set(judge("softmax", candidate).vendor_calls)
