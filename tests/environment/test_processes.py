"""The process of the performance gate ends while the judge goes on, and is collected; a failed one ends at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kforge.environment.processes import Processes, collect
from kforge.errors import KforgeError
from kforge.worker import Child, Zygote


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    """Whether it is gone within 10 s."""
    deadline = time.monotonic() + 10.0
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


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
