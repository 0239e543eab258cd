"""How an evaluation ends: a full disk is the machine's fault and no candidate's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hand_written as kernels
import pytest

from kforge.environment import ending
from kforge.environment.ending import require_room
from kforge.environment.report import Report, Status
from kforge.errors import ChildFailed, MissingError

Judge = Callable[..., Report]
BROKEN = kernels.candidate("softmax", ("float sum = 0.f;", "float sum = ;"))


def test_a_full_disk_blames_no_candidate(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder's disk has no room, a source that does not compile ends the command and gives no report; what
    the same candidate has filled itself is its own failure."""
    monkeypatch.setattr(ending, "FULL_BYTES", 1 << 62)
    with pytest.raises(MissingError, match=r"no room on the disk of .*could not be judged"):
        judge("softmax", BROKEN)
    monkeypatch.setattr(ending, "OWN_BYTES", -1)
    report = judge("softmax", BROKEN)
    assert report.status is Status.BUILD_FAILED and "expected an expression" in report.failure


def test_a_disk_is_short_only_where_a_process_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What did not fit is gone again when the judge looks: with the system's words for it little room is too little."""
    monkeypatch.setattr(ending, "SHORT_BYTES", 1 << 62)
    require_room(tmp_path, ChildFailed("crashed", "died of SIGSEGV"))
    for told in (ChildFailed("raised", "x", "cc1plus: No space left on device"), _missing()):
        with pytest.raises(MissingError):
            require_room(tmp_path, told)


def _missing() -> ChildFailed:
    return ChildFailed(
        "raised", "x", error={"kind": "build", "message": "g++ failed", "log": "No space left on device"}
    )
