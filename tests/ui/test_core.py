"""The IDE's side of the core process, where the process ends at a bad moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from kforge.ui import core as core_module
from kforge.ui.app import KforgeApp
from kforge.ui.core import Core, CoreLost
from kforge.ui.watch import Watch
from tests.ui.driving import driven

# Until the mark is there the process ends, and what it has forked goes on with the pipes named in argv.
DYING = """
import json, os, sys, time
mark, kept, words = sys.argv[1:]
request = json.loads(sys.stdin.readline())
if os.path.exists(mark):
    print(json.dumps({"re": request["id"], "ok": True, "result": {"core": "second"}}), flush=True)
    sys.stdin.readline()
else:
    open(mark, "w").close()
    parent = os.getpid()
    if os.fork() == 0:
        for fd in {0, 1, 2} - {int(fd) for fd in kept}:
            os.close(fd)
        while os.getppid() == parent:
            time.sleep(0.001)
        if words:
            os.write(2, words.encode())
        else:
            time.sleep(3600)
    os._exit(3)
"""


def dying(folder: Path, kept: str, words: str) -> Core:
    """A core that dies of its first request. kept: descriptors that its child holds on to. words: which that says."""
    return Core(folder / "op.py", command=[sys.executable, "-c", DYING, str(folder / "mark"), kept, words])


def test_who_waits_for_a_dead_core_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request made in the moment of a core's death starts another one, and the one before it does not wait on."""
    monkeypatch.setattr(core_module, "QUIT_S", 0.1)

    async def scene() -> None:
        core = dying(tmp_path, "1", "")  # its output stays open: the reader does not see the end
        first = asyncio.create_task(core.request("open"))
        while core.pid is None or core.alive:
            await asyncio.sleep(0.01)
        dead = core.pid
        try:
            assert await core.request("open") == {"core": "second"}
            with pytest.raises(CoreLost, match="exit code 3"):
                await asyncio.wait_for(first, 60)
        finally:
            os.killpg(dead, signal.SIGKILL)
            await core.close()

    asyncio.run(scene())


def test_the_last_words_of_a_core_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes on its stderr after its end is in the reason."""
    monkeypatch.setattr(core_module, "WORDS_S", 60.0)

    async def scene() -> None:
        core = dying(tmp_path, "2", "the last words")
        with pytest.raises(CoreLost, match="exit code 3: the last words"):
            await core.request("open")
        await core.close()

    asyncio.run(scene())


def test_nobody_is_told_of_files_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes while the watch is being closed starts no timer; one that was to be told is dropped."""
    told: list[set[Path]] = []
    watch, path = Watch(told.append), tmp_path / "a.py"
    watch.follow([path])
    monkeypatch.setattr(Watch, "_stop", lambda self: self._seen(path))  # the observer's thread is still at work
    watch.close()
    assert watch._timer is None
    watch._changed.add(path)
    watch._settled()
    assert told == []
    monkeypatch.undo()
    watch.close()


def test_a_change_while_the_ide_closes_begins_nothing(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes when the widgets are already going is nobody's any more."""
    prune, begun = KforgeApp._prune, []

    async def changing(self: KforgeApp, *nodes: Any, **options: Any) -> None:
        monkeypatch.setattr(self, "take_changes", begun.append)
        self._take_changes({op})
        await prune(self, *nodes, **options)

    async def act(app: KforgeApp, pilot: Any) -> None:
        monkeypatch.setattr(KforgeApp, "_prune", changing)
        app.exit(0)

    driven(op, act)
    assert begun == []
