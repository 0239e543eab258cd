"""A folder of tasks as a batch: which tasks, which shard, what the file of rows says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kforge.cli.bench_suite import parse_part, rows_of, suite_lines
from kforge.errors import UsageError
from tests.cli.driving import kforge

OP = "import torch\n\n\ndef reference(x):\n    return {body}\n\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Three tasks without candidates, one of them beyond the engine, and a file that is no task."""
    folder = tmp_path / "suite"
    (folder / "more").mkdir(parents=True)
    (folder / "double.py").write_text(OP.format(body="x * 2"))
    (folder / "rows.py").write_text(OP.format(body="x.sum(1)"))
    (folder / "more" / "fft.py").write_text(OP.format(body="torch.fft.fft(x).abs()"))
    (folder / "helpers.py").write_text("SIZE = 4\n")
    return folder


def test_tasks_get_the_engines_candidate(suite: Path) -> None:
    """Each task is a job under its path; what the engine cannot do is a line with its error, not the end."""
    lines = {line.id: line for line in suite_lines(suite, (1, 1), "cpu", plan="quick", arch="sm_90a", energy=None)}
    assert sorted(lines) == ["double", "more/fft", "rows"]
    assert lines["double"].job is not None and "__global__" in str(lines["double"].job.body["candidate"])
    assert lines["more/fft"].job is None and "fft" in str(lines["more/fft"].error)
    again = {line.id: line.key for line in suite_lines(suite, (1, 1), "cpu", plan="quick", arch="sm_90a", energy=None)}
    assert again == {name: line.key for name, line in lines.items()}


def test_shards_are_disjoint_and_whole(suite: Path) -> None:
    """The parts of a suite hold each task once."""
    parts = [
        [line.id for line in suite_lines(suite, (k, 2), "cpu", plan="quick", arch=None, energy=None)] for k in (1, 2)
    ]
    assert sorted(parts[0] + parts[1]) == ["double", "more/fft", "rows"] and len(parts[0]) == 2


@pytest.mark.parametrize("text", ("0/2", "3/2", "1", "a/b", "1/0", "-1/2"))
def test_parts_that_are_none(text: str) -> None:
    """Anything but K/N with 1 <= K <= N is a usage error."""
    with pytest.raises(UsageError, match="not a shard"):
        parse_part(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["suite", "--out", "rows.jsonl"], "rows.jsonl exists"),
        (["jobs.jsonl", "--out", "rows.jsonl"], "rows.jsonl exists"),
        (["suite", "--out", "new.jsonl", "--objective", "heat"], "--objective heat: choose speed or energy"),
        (["jobs.jsonl", "--part", "1/2"], "--energy, --objective and --part are not for a file of jobs"),
        (["jobs.jsonl", "--energy"], "--energy, --objective and --part are not for a file of jobs"),
    ],
)
def test_what_cannot_be_is_said_before_any_task_is_read(tmp_path: Path, arguments: list[str], message: str) -> None:
    """The engine is not asked for a candidate of each task first, and no job is read."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "op.py").write_text("raise SystemExit('read')\n")
    (tmp_path / "jobs.jsonl").write_text("not read\n")
    (tmp_path / "rows.jsonl").write_text("")
    done = kforge("bench", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert message in line


def test_rows_of_a_file(tmp_path: Path) -> None:
    """The last line of a name counts; a torn line is none."""
    path = tmp_path / "rows.jsonl"
    first = {"id": "a", "worker": "local", "error": {"message": "no kernel"}}
    lines = [first, {"id": "b", "error": {"message": "x"}}, first | {"error": {"message": "still none"}}]
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"id": "c", "err')
    rows = rows_of(path)
    assert [(row.name, row.status, row.error) for row in rows] == [("a", "error", "still none"), ("b", "error", "x")]
