"""The event log of a run: what is appended is replayed, and a crash in the middle of a line costs that line only."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kforge.errors import KforgeError, StoreError, UsageError
from kforge.store.events import RunLog, replay, salvage
from kforge.store.schema import PAYLOADS, SCHEMA


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog.create(tmp_path / "runs", "ops/soft max.py")


def test_replay_returns_what_was_appended(log: RunLog) -> None:
    """Events come back in order, numbered from 0, with their data and the schema's version."""
    log.append("run_started", task="softmax.py", options={"budget": 60.0})
    log.append("proposed", candidate="ab12", idea="one block per row", expected_gain=1.5)
    events = list(log.replay())
    assert [(e.seq, e.kind, e.schema) for e in events] == [(0, "run_started", SCHEMA), (1, "proposed", SCHEMA)]
    assert events[1].data == {"candidate": "ab12", "idea": "one block per row", "expected_gain": 1.5}
    assert events[0].time <= events[1].time


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_moves_no_event(log: RunLog, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Events of one process keep their distance: a resumed run's budget would be spent at once, or never."""
    first = log.append("message", text="before", level="info")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    second = log.append("message", text="after", level="info")
    assert 0 <= second.time - first.time < abs(jump)


def test_run_id_names_the_task_and_is_a_plain_folder_name(log: RunLog) -> None:
    """A run's id holds the task's name in characters that need no quoting."""
    assert "-soft-max-" in log.id
    assert log.folder.name == log.id and " " not in log.id


def test_two_runs_of_one_second_differ(tmp_path: Path) -> None:
    """Runs created at the same moment get folders of their own."""
    assert len({RunLog.create(tmp_path, "x.py").id for _ in range(20)}) == 20


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_torn_last_line_is_left_out(log: RunLog, cut: int) -> None:
    """A last line that lost its end in a crash is not an event; those before it are kept."""
    log.append("run_started", task="a.py")
    log.append("message", text="second")
    log.close()
    data = log.path.read_bytes()
    log.path.write_bytes(data[:-cut])
    assert [e.kind for e in replay(log.path)] == ["run_started"]


def test_appending_after_a_torn_line_keeps_the_log_whole(log: RunLog) -> None:
    """Reopening removes the torn line, so that numbering goes on without a gap."""
    log.append("run_started", task="a.py")
    log.append("message", text="lost")
    log.close()
    log.path.write_bytes(log.path.read_bytes()[:-5])
    with RunLog(log.folder) as again:
        again.append("message", text="kept")
    assert [(e.seq, e.data.get("text")) for e in replay(log.path)] == [(0, None), (1, "kept")]


def test_damage_in_the_middle_is_an_error_with_its_line(log: RunLog) -> None:
    """A spoiled line that is not the last is reported by number, never skipped."""
    for text in "abc":
        log.append("message", text=text)
    lines = log.path.read_bytes().split(b"\n")
    lines[1] = b'{"schema":1'
    log.path.write_bytes(b"\n".join(lines))
    with pytest.raises(KforgeError, match=r"events\.jsonl:2: damaged event"):
        list(replay(log.path))


def test_newer_schema_is_refused(log: RunLog) -> None:
    """A log of a later kforge is refused by number instead of being misread."""
    line = {"schema": SCHEMA + 1, "seq": 0, "time": 0.0, "kind": "message", "data": {"text": "x"}}
    log.path.write_text(json.dumps(line) + "\n")
    with pytest.raises(KforgeError, match="newer"):
        list(replay(log.path))


def test_unknown_kind_and_missing_field_are_refused(log: RunLog) -> None:
    """The schema is enforced when writing, and nothing of a refused event reaches the file."""
    with pytest.raises(KforgeError, match="unknown event kind 'finnished'"):
        log.append("finnished")
    with pytest.raises(KforgeError, match="lacks status"):
        log.append("evaluated", candidate="ab")
    assert log.path.read_bytes() == b""


def test_further_fields_are_kept(log: RunLog) -> None:
    """Fields beyond the schema are recorded: an older reader may skip what a newer writer adds."""
    log.append("best", candidate="ab", rank=3)
    assert next(log.replay()).data["rank"] == 3


def test_values_that_json_lacks(log: RunLog) -> None:
    """Infinite and undefined numbers become null and paths become text: the log stays strict JSON."""
    log.append("best", candidate="ab", speedup=math.inf, ms=[math.nan, 1.0], folder=Path("a/b"))
    line = log.path.read_text()
    assert json.loads(line, parse_constant=pytest.fail)["data"] == {
        "candidate": "ab",
        "speedup": None,
        "ms": [None, 1.0],
        "folder": "a/b",
    }


def test_one_writer_at_a_time(log: RunLog) -> None:
    """A second writer of the same run, in another process, is refused; once the first closes it may write."""
    code = f"from kforge.store.events import RunLog; RunLog({str(log.folder)!r}).append('message', text='hi')"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "written by another process" in refused.stderr
    log.close()
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert [e.data["text"] for e in replay(log.path)] == ["hi"]


def test_opening_what_is_no_run(tmp_path: Path) -> None:
    """A folder without a log is a usage error that names it."""
    with pytest.raises(UsageError, match="no run in"):
        RunLog(tmp_path)


def test_schema_lists_the_kinds_of_a_run() -> None:
    """The kinds are those that progress, replay and the UI are written for."""
    assert set(PAYLOADS) == {
        "run_started", "task_loaded", "task_inspected", "captured", "baseline_timed", "floor", "proposed", "building",
        "case", "gate", "evaluated", "tuned", "best", "written", "message", "error", "run_finished", "node",
        "model_started", "model_text", "model_call", "tool_call", "meter", "steer", "constraint", "compacted", "lesson",
        "profiled", "hunk", "accepted", "undone", "exported", "stopped", "resumed", "conversation",
    }  # fmt: skip


def test_salvage_tells_what_can_be_read_and_what_cannot(log: RunLog) -> None:
    """Events around damage are kept in order, every damaged line is named, and nothing raises."""
    for text in "abc":
        log.append("message", text=text)
    lines = log.path.read_bytes().split(b"\n")
    lines[1] = b'{"schema":1,"seq":1,"time":"noon","kind":"message","data":{}}'
    log.path.write_bytes(b"\n".join(lines) + b'{"schema"')
    events, damage = salvage(log.path)
    assert [event.data["text"] for event in events] == ["a", "c"]
    assert ["damaged event" in damage[0], "cut off" in damage[1], len(damage)] == [True, True, 2]
    events, damage = salvage(log.folder / "absent")
    assert events == [] and "No such file" in damage[0]


def test_a_full_disk_leaves_whole_lines(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that stops half-way is taken back: what follows, once there is room, begins on a line of its own."""
    log.append("message", text="first")
    write = os.write

    def half(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", full)
        return write(fd, data[:10])

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StoreError, match=r"events\.jsonl cannot be written: No space left on device"):
        log.append("message", text="lost")
    monkeypatch.undo()
    log.append("message", text="second")
    assert [event.data["text"] for event in replay(log.path)] == ["first", "second"]


def test_a_folder_that_takes_no_run(tmp_path: Path) -> None:
    """A run that cannot be made is one line that says how to choose another place."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match="Not a directory") as caught:
        RunLog.create(tmp_path / "runs", "a.py")
    assert "KFORGE_STATE" in caught.value.hint
