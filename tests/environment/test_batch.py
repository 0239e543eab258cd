"""A file of jobs: lines made into jobs, bad lines kept apart, and what an earlier output already holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kforge.environment.batch import finished, read_lines
from kforge.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "op.py").write_text("x = 1\n")
    (tmp_path / "op_kforge.py").write_text("class ModelNew: ...\n")
    return tmp_path


def _jobs(folder: Path, *lines: object) -> Path:
    path = folder / "jobs.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_lines_become_jobs(folder: Path) -> None:
    """A line's plan goes before the default, its id before its number; paths are relative to the file."""
    good = {"op": "op.py", "candidate": "op_kforge.py"}
    path = _jobs(folder, good, "", good | {"id": "x", "plan": "full", "tag": 7, "timing": False})
    first, second = read_lines(path, "quick", "sm_90a")
    assert first.job and second.job
    assert (first.id, first.job.body["plan"], first.job.body["arch"]) == ("1", "quick", "sm_90a")
    assert (second.id, second.job.body["plan"], second.job.body["timing"]) == ("x", "full", False)
    assert first.job.body["candidate"]["files"] == {"op_kforge.py": "class ModelNew: ...\n"}
    assert first.job.task == second.job.task and second.about["tag"] == 7
    assert first.job.body["task"]["manifest"]["kforge"]


def test_bad_lines_are_errors_of_their_own(folder: Path) -> None:
    """Each bad line says its number and what is wrong; the good one among them stays a job."""
    good = {"op": "op.py", "candidate": "op_kforge.py"}
    wrong = ["{", [1], {"op": "op.py"}, good | {"plam": "full"}, good | {"plan": "slow"}, good | {"candidate": "no.py"}]
    wrong += [good | {"op": "no.py"}, good | {"id": "same"}, good | {"id": "same"}]
    lines = list(read_lines(_jobs(folder, *wrong)))
    words = ["not JSON", "not a JSON object", "candidate is missing", "unknown field 'plam'", "unknown plan 'slow'"]
    words += ["no such file: no.py", "no such file", "", "'same' was used before"]
    for number, (line, word) in enumerate(zip(lines, words, strict=True), start=1):
        if not word:
            assert line.job is not None
            continue
        assert line.job is None and line.error is not None
        assert f"line {number}: " in line.error.message and word in line.error.message


def test_lines_that_no_worker_would_answer(folder: Path) -> None:
    """An id that the protocol refuses would be waited for without end; it is an error of its line like the others."""
    good = {"op": "op.py", "candidate": "op_kforge.py"}
    wrong = [good | {"id": "z" * 201}, good | {"id": ""}, good | {"arch": "sm_1"}, good | {"candidate": "x" * 5000}]
    lines = list(read_lines(_jobs(folder, *wrong, "[" * 100_000)))
    words = ["201 characters", "0 characters", "not an architecture", "File name too long", "not JSON"]
    for number, (line, word) in enumerate(zip(lines, words, strict=True), start=1):
        assert line.job is None and line.error is not None
        assert f"line {number}: " in line.error.message and word in line.error.message


def test_what_ends_a_line_and_what_does_not(folder: Path) -> None:
    """JSON may hold U+2028 as it is: only a newline ends a line. A file that is not UTF-8 is refused with the place."""
    path = folder / "jobs.jsonl"
    path.write_text('{"op": "op.py", "candidate": "op_kforge.py", "tag": "a\u2028b"}\r\n', encoding="utf-8")
    (line,) = read_lines(path)
    assert line.job is not None and line.about["tag"] == "a\u2028b"
    path.write_bytes(b'{"op": "\xe9.py"}\n')
    with pytest.raises(UsageError, match="not UTF-8 at byte 8"):
        list(read_lines(path))


def test_the_key_is_what_the_job_is(folder: Path) -> None:
    """The key stays for the same job and changes with the candidate, the task and the plan."""
    path = _jobs(folder, {"op": "op.py", "candidate": "op_kforge.py"})
    keys = [next(read_lines(path)).key, next(read_lines(path)).key, next(read_lines(path, "full")).key]
    (folder / "op_kforge.py").write_text("class ModelNew: pass\n")
    keys.append(next(read_lines(path)).key)
    (folder / "op.py").write_text("x = 2\n")
    keys.append(next(read_lines(path)).key)
    assert keys[0] == keys[1] and len(set(keys)) == 4


def test_what_is_finished(tmp_path: Path) -> None:
    """Reports count, errors do not; a line torn by a crash is cut off so that the next one begins anew."""
    path = tmp_path / "reports.jsonl"
    assert finished(path) == {}
    whole = '{"id":"1","key":"k","report":{}}\n{"id":"2","error":{}}\n{"schema":2,"jobs":2}\n'
    path.write_text(whole + '{"id":"3","rep')
    assert finished(path) == {"1": "k"}
    assert path.read_text() == whole
    path.write_text("not a report\n")
    with pytest.raises(UsageError, match=r"reports\.jsonl:1"):
        finished(path)
