"""What a kill -9 leaves is removed by a later start; what lives is left alone."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kforge import scratch
from kforge.store.events import RunLog, replay
from kforge.store.index import Index
from kforge.store.sweep import sweep_runs

ROOT = Path(__file__).resolve().parents[2]

WORKER = """
import sys, time
from pathlib import Path
from kforge import scratch
from kforge.store.events import RunLog
from kforge.store.index import Index

state = Path(sys.argv[1])
(scratch.make("work") / "file").write_text("x")
index = Index(state / "index.sqlite")
log = RunLog.create(state / "runs", sys.argv[2])
index.start_run(log.id, sys.argv[2], log.folder)
log.append("run_started", task=sys.argv[2])
(log.folder / "work" / "candidates").mkdir(parents=True)
(log.folder / "candidates" / ".new-half").mkdir(parents=True)
(log.folder / "candidates" / "0123456789abcdef").mkdir()
print(log.id, scratch.root(), flush=True)
time.sleep(3600)
"""


def _start(state: Path, temporary: Path, name: str) -> tuple[subprocess.Popen[str], str, Path]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(state), name], env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    run, folder = process.stdout.readline().split()
    return process, run, Path(folder)


def test_the_dead_are_swept_and_the_living_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs one is killed: its temporary and working folders go, its log and candidates stay, its record ends."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    state = tmp_path / ".kforge"
    dead, dead_run, dead_folder = _start(state, tmp_path, "dead.py")
    live, live_run, live_folder = _start(state, tmp_path, "live.py")
    try:
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert dead_folder.is_dir()
        scratch.sweep()
        with Index(state / "index.sqlite") as index:
            assert sweep_runs(state / "runs", index) == [dead_run]
            status = {row.id: row.status for row in index.runs()}
        assert status == {dead_run: "died", live_run: None}
        assert not dead_folder.exists() and live_folder.is_dir()
        left = state / "runs" / dead_run
        assert [event.kind for event in replay(left / "events.jsonl")] == ["run_started"]
        assert not (left / "work").exists() and not (left / "candidates" / ".new-half").exists()
        assert (left / "candidates" / "0123456789abcdef").is_dir()
        assert (state / "runs" / live_run / "work").is_dir()
    finally:
        live.kill()
        live.wait()


def test_a_run_that_was_hardly_made(tmp_path: Path) -> None:
    """An empty log of a dead process is no run: its folder goes, unless it was made just now."""
    state = tmp_path / ".kforge"
    for name in ("old", "new"):
        RunLog.create(state / "runs", name).close()
    (old,) = (state / "runs").glob("*-old-*")
    os.utime(old / "events.jsonl", (0, 0))
    with Index(state / "index.sqlite") as index:
        sweep_runs(state / "runs", index)
    assert [path.name.split("-")[2] for path in (state / "runs").iterdir()] == ["new"]


def test_scratch_is_removed_with_its_process(tmp_path: Path) -> None:
    """A process that ends in order leaves no temporary folder."""
    code = "from kforge import scratch; print(scratch.make('a').is_dir())"
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n" and list(tmp_path.iterdir()) == []


def test_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only folders of this name and user are looked at, and one without a lock only when it is old."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = ("kforge-something", f"kforge-{os.getuid()}-fresh", f"kforge-{os.getuid()}-old", f"kforge-{os.getuid()}9-x")
    for name in names:
        (tmp_path / name).mkdir()
    os.utime(tmp_path / names[2], (0, 0))
    scratch.sweep()
    assert {path.name for path in tmp_path.iterdir()} == set(names) - {names[2]}


def test_a_folder_that_is_being_made_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of another process finds no moment at which a living process's folder has a lock that is free."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_own", None)

    def sweeping(function: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            found = function(*arguments, **options)
            if not sweeps:
                sweeps.append(True)
                scratch.sweep()
                sweeps.pop()
            return found

        return called

    sweeps: list[bool] = []
    for module, name in ((os, "open"), (os, "rename"), (fcntl, "flock"), (tempfile, "mkdtemp")):
        monkeypatch.setattr(module, name, sweeping(getattr(module, name)))
    made = scratch.root()
    assert made.is_dir() and made.parent == tmp_path
    scratch.remove()
    assert not made.exists()
