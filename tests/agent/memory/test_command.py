"""`kforge runs memory`: what it shows, as text and as JSON, and what it forgets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kforge.agent.memory import FILE_NAME, Lesson, Memory
from tests.patience import PATIENCE_S


def _command(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFORGE_")}
    env |= {"PYTHONPATH": str(Path(__file__).resolve().parents[3]), "COLUMNS": "160"}
    command = [sys.executable, "-m", "kforge", "runs", "memory", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def _object(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    value = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(value, dict) and value["exit_code"] == done.returncode
    return value


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose memory holds three failures of one direction on one chip, and a gain on another."""
    with Memory(tmp_path / ".kforge" / FILE_NAME) as memory:
        for number in range(3):
            memory.remember(
                Lesson("softmax", "memory", "NVIDIA H200", "tiling", "failed", f"\x1b[31mtry {number}", why="NaN")
            )
        memory.remember(
            Lesson("norm", "cache", "emulator", "split", "gain", "two blocks a row", gain=1.5, source="secret")
        )
    return tmp_path


def test_shows_lessons_and_what_to_avoid(project: Path) -> None:
    """Newest first, each with its key; a direction that keeps failing is marked; foreign text stays harmless."""
    done = _command(project)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("4 ") and lines[0].endswith("norm, cache, emulator")
    assert lines[1] == "    split: two blocks a row: gain 1.50x"
    assert [line.split()[-1] for line in lines if line.startswith("softmax")] == ["AVOID"]


def test_untimed_runs_are_not_better(tmp_path: Path) -> None:
    """A direction is told as right and better only where its tries were timed; its idea is not said twice."""
    with Memory(tmp_path / ".kforge" / FILE_NAME) as memory:
        memory.remember(Lesson("softmax", "launch", "emulator", "engine:a warp a row", "right", "a warp a row, twice"))
        memory.remember(Lesson("softmax", "launch", "NVIDIA H200", "split", "gain", "two blocks", gain=1.5))
        memory.remember(Lesson("softmax", "launch", "NVIDIA H200", "split", "right", "four blocks"))
    lines = _command(tmp_path).stdout.splitlines()
    assert "    a warp a row, twice: right" in lines
    untimed, timed = (next(line for line in lines if line.startswith("softmax") and chip in line)
                      for chip in ("emulator", "H200"))  # fmt: skip
    assert untimed.endswith("1 right, none timed") and timed.endswith("2 right and better, 1 timed")


def test_json(project: Path) -> None:
    """--json has the same as data, narrowed by --family, without the sources of hacks."""
    value = _object(_command(project, "--family", "softmax", "--limit", "2", "--json"))
    assert [lesson["id"] for lesson in value["lessons"]] == [3, 2] and "source" not in value["lessons"][0]
    (direction,) = value["directions"]
    assert (direction["direction"], direction["tries"], direction["successes"], direction["avoid"]) == (
        "tiling", 3, 0, True)  # fmt: skip


def test_prune(project: Path) -> None:
    """--prune forgets what the other options select, and --all everything."""
    assert _object(_command(project, "--prune", "--family", "softmax", "--keep", "1", "--json"))["forgotten"] == 2
    assert _object(_command(project, "--prune", "--older-than", "1", "--json"))["forgotten"] == 0
    assert _object(_command(project, "--prune", "--id", "4", "--id", "99", "--json"))["forgotten"] == 1
    assert [lesson["id"] for lesson in _object(_command(project, "--json"))["lessons"]] == [3]
    assert _command(project, "--prune", "--all").stdout == "1 lesson forgotten\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prune"], "say what to forget"),
        (["--prune", "--all", "--family", "softmax"], "say what to forget"),
        (["--keep", "3"], "add --prune"),
        (["--all"], "add --prune"),
    ],
)
def test_unclear_prune_is_refused(project: Path, arguments: list[str], words: str) -> None:
    """Nothing is forgotten by a command line that may mean something else."""
    done = _command(project, *arguments)
    assert done.returncode == 2 and words in done.stderr
    with Memory(project / ".kforge" / FILE_NAME) as memory:
        assert len(memory.all()) == 4


def test_without_a_memory(tmp_path: Path) -> None:
    """Before the first run there is nothing, and looking makes no file."""
    assert _object(_command(tmp_path, "--json"))["lessons"] == []
    assert _object(_command(tmp_path, "--prune", "--all", "--json"))["forgotten"] == 0
    assert list(tmp_path.iterdir()) == []
