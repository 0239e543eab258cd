"""What a worker does with a request: tasks kept apart, judges kept ready, builds made ahead and found again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kforge.environment.service import Judge
from kforge.errors import TaskError, UsageError, VersionMismatch
from kforge.worker.manifest import manifest
from kforge.worker.parcel import Parcel, parse_candidate
from tests import scaling

TASK = scaling.task("x * FACTOR", (4, 32), "from factors import FACTOR")
MODULE = scaling.module()
KERNEL = scaling.kernel()


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge("cpu") as made:
        yield made


def body(factor: float = 2.0, **fields: Any) -> dict[str, Any]:
    """A request for a task that multiplies by `factor`, and the candidate that multiplies by 2."""
    files = {"op.py": TASK, "factors.py": f"FACTOR = {factor}\n"}
    candidate = {"module": "scale_kforge.py", "files": {"scale_kforge.py": MODULE, "scale_kforge.cu": KERNEL}}
    task = {"entry": "op.py", "files": files, "manifest": manifest()}
    return {
        "protocol": 1,
        "id": "1",
        "kind": "evaluate",
        "task": task,
        "candidate": candidate,
        "plan": "quick",
    } | fields


def status(judge: Judge, request: dict[str, Any]) -> str:
    events: list[str] = []
    report = judge.evaluate(request, lambda kind, data: events.append(kind))["report"]
    assert "gate" in events
    return str(report["status"])


def test_tasks_do_not_see_each_others_modules(judge: Judge) -> None:
    """Two tasks whose helpers share a name and differ in content are each judged by their own, whichever came first."""
    assert status(judge, body(2.0)) == "verified"
    assert status(judge, body(3.0)) == "wrong"
    assert status(judge, body(2.0)) == "verified"


def test_a_judge_is_kept_and_seeds_are_its_own(judge: Judge) -> None:
    """The same task is prepared once; a request with a seed has a judge of its own, whose inputs follow from it."""
    reports = [judge.evaluate(body(2.0), lambda kind, data: None)["report"] for _ in range(2)]
    assert reports[0]["environment"]["seed"] == reports[1]["environment"]["seed"]
    seeded = judge.evaluate(body(2.0, seed=77), lambda kind, data: None)["report"]
    assert seeded["environment"]["seed"] == "77"


def test_what_is_built_ahead_is_found_by_the_evaluation(judge: Judge) -> None:
    """A build ahead leaves the cubin in the candidate's own cache, where the evaluation's build takes it from."""
    request = body(2.0)
    request["candidate"]["files"]["scale_kforge.cu"] = KERNEL + "// another text\n"
    judge.build(request)
    (ahead,) = _cubins(judge, request)
    written = ahead.stat().st_mtime_ns
    assert status(judge, request) == "verified"
    assert [cubin.stat().st_mtime_ns for cubin in _cubins(judge, request)] == [written]


def test_nothing_is_built_ahead_that_its_text_rules_out(judge: Judge, tmp_path: Path) -> None:
    """A module that would compile when it is imported is not even imported where the static gate rejects it."""
    mark = tmp_path / "was here"
    request = body(2.0)
    text = f"import torch.utils.cpp_extension  # load_inline\nopen({str(mark)!r}, 'w')\n{MODULE}"
    request["candidate"]["files"]["scale_kforge.py"] = text
    folder = judge._folder(Parcel.parse(request["task"]), request)
    before = set((folder / "candidates").glob("*"))
    judge.build(request)
    assert set((folder / "candidates").glob("*")) == before and not mark.exists()
    assert status(judge, request) == "rejected"


def _cubins(judge: Judge, request: dict[str, Any]) -> list[Path]:
    return list(judge.folder.glob(f"*/candidates/{parse_candidate(request['candidate']).digest}/**/kernel.cubin"))


def test_what_is_refused(judge: Judge) -> None:
    """Other versions, unknown fields and plans, and a task that does not load, each by its own error."""
    other = body()
    other["task"]["manifest"] = manifest() | {"kforge": "9.9", "python": "2.7"}
    with pytest.raises(VersionMismatch, match=r"9\.9 asked for; python .* 2\.7 asked for"):
        judge.evaluate(other, lambda kind, data: None)
    with pytest.raises(UsageError, match="unknown field 'colour'"):
        judge.evaluate(body(colour=1), lambda kind, data: None)
    with pytest.raises(UsageError, match="unknown plan 'slow'"):
        judge.evaluate(body(plan="slow"), lambda kind, data: None)
    broken = body()
    broken["task"]["files"]["op.py"] = "def broken(:\n"
    with pytest.raises(TaskError, match=r"op\.py:1: syntax error"):
        judge.evaluate(broken, lambda kind, data: None)


@pytest.mark.parametrize(
    ("part", "name", "value", "words"),
    [
        ("", "seed", "x", "seed 'x'"),
        ("", "seed", 1.5, "seed 1.5"),
        ("", "arch", 5, "not an architecture"),
        ("task", "manifest", {"kforge": 5}, "not a list of versions"),
        ("task", "files", {"op.py": "x", "op.py/a.py": ""}, "a file and a folder"),
        ("task", "files", {"op.py": "\ud800"}, "half a character"),
        ("candidate", "files", {"k.py": "", "n" * 300: ""}, "not a plain relative name"),
    ],
)
def test_fields_of_another_type_are_the_requests_mistake(
    judge: Judge, part: str, name: str, value: object, words: str
) -> None:
    """What no client of ours sends is a usage error with its name, no fault of the worker and no verdict."""
    request = body()
    (request[part] if part else request)[name] = value
    with pytest.raises(UsageError, match=words):
        judge.evaluate(request, lambda kind, data: None)
