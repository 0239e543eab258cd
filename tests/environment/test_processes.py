"""The process of the performance gate ends while the judge goes on, and is collected; a failed one ends at once."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from kforge.environment.processes import Processes, _copy_builds, collect, processes_for
from kforge.errors import KforgeError
from kforge.worker import Child, Zygote
from tests.patience import until


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    """It is gone after a while."""
    return until(lambda: not alive(pid))


@pytest.fixture
def processes(zygote: Zygote, tmp_path: Path) -> Processes:
    return Processes(zygote, tmp_path / "candidate", "cpu")


def test_a_timed_process_ends_by_itself_and_is_collected(processes: Processes) -> None:
    """It is told to end when the gate is left; who collects it finds its last words, and nothing is left over."""
    ending: list[Child] = []
    with processes.timed(ending) as child:
        pid = int(child.hello["pid"])
        assert alive(pid)
    assert ending == [child] and child.end is None and ends(pid)
    collect(ending)
    assert ending == [] and child.end is not None and child.end["reason"] == "killed"


def test_without_a_next_evaluation_it_has_ended(processes: Processes) -> None:
    """A judge that sees no further candidate leaves nothing to be collected."""
    with processes.timed() as child:
        pid = int(child.hello["pid"])
    assert child.end is not None and not alive(pid)


def test_after_an_error_it_has_ended(processes: Processes) -> None:
    """Whatever goes wrong while it is timed: the error comes out, the process is gone."""
    ending: list[Child] = []
    with pytest.raises(KforgeError, match="too slow"), processes.timed(ending) as child:
        pid = int(child.hello["pid"])
        raise KforgeError("too slow")
    assert ending == [] and child.end is not None and not alive(pid)


def test_the_parents_end_collects_what_nobody_did(tmp_path: Path) -> None:
    """A process that was told to end and forgotten is closed with its warm parent."""
    ending: list[Child] = []
    with Zygote() as warm, Processes(warm, tmp_path / "candidate", "cpu").timed(ending) as child:
        pid = int(child.hello["pid"])
    assert child.end is not None and not alive(pid)


def test_of_what_was_built_ahead_only_files_move(tmp_path: Path) -> None:
    """Links, pipes and folders behind links that a candidate's build left stay behind; files and folders come along."""
    secret, cache, to = tmp_path / "home", tmp_path / "cache", tmp_path / "to"
    (secret / "ssh").mkdir(parents=True)
    (secret / "key").write_text("private")
    (cache / "entry").mkdir(parents=True)
    (cache / "entry" / "k.cubin").write_bytes(b"code")
    (cache / "all").symlink_to(secret)
    (cache / "entry" / "key").symlink_to(secret / "key")
    os.mkfifo(cache / "entry" / "pipe")
    to.mkdir()
    (to / "entry").symlink_to(secret)  # nor is anything written through a link that is there
    _copy_builds(cache, to)
    assert {str(p.relative_to(to)) for p in to.rglob("*")} == {"entry", "entry/k.cubin"}
    assert (to / "entry" / "k.cubin").read_bytes() == b"code" and not (to / "entry").is_symlink()
    assert {p.name for p in secret.iterdir()} == {"ssh", "key"}


@pytest.mark.parametrize("left", ["deep", "unwritable", "stop"])
def test_spare_processes_end_where_builds_cannot_move(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """Whatever stands against copying a candidate's builds, no process is left: it works where they are."""
    own = tmp_path / "candidates" / "key"
    (own / "cache").mkdir(parents=True)
    error = {"deep": RecursionError(), "unwritable": PermissionError(), "stop": KeyboardInterrupt()}[left]

    def refuse(*paths: Path) -> None:
        raise error

    monkeypatch.setattr("kforge.environment.processes._copy_builds", refuse)
    spare = processes.compiler()
    processes._ahead["compile"], pid = spare, int(spare.hello["pid"])
    judge = SimpleNamespace(
        folder=tmp_path, task=SimpleNamespace(constraints=()), rooms={}, spare=processes, device="cpu"
    )
    if left == "stop":
        with pytest.raises(KeyboardInterrupt):
            processes_for(judge, processes.zygote, "key")  # type: ignore[arg-type]
    else:
        made = processes_for(judge, processes.zygote, "key")  # type: ignore[arg-type]
        assert made.folder == own == judge.rooms["key"] and made.built and made is not processes
    assert judge.spare is None and spare.end is not None and not alive(pid)
