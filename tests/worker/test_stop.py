"""A stopped child runs no more, whatever it started; its end may come later and is waited for by `close`."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from kforge.task.call import Call
from kforge.worker import Zygote
from kforge.worker.limits import descendants
from tests.patience import until
from tests.worker.sources import body

WRITERS = """
import os, threading

def count(name):
    number = 0
    while True:
        number += 1
        with open(name, "w") as file:
            file.write(str(number))

def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            count(name)
        os._exit(0)
"""

ENDS = """
import os, threading, time

def end_when_told():
    while not os.path.exists('go'):
        time.sleep(0.01)
    os._exit(3)
"""


def _counts(box: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in box.glob("*.count")}


def test_nothing_runs_after_stop(zygote: Zygote, tmp_path: Path) -> None:
    """A thread, a fork and a daemon that write without end: after `stop` not a single byte more."""
    box = tmp_path / "box"
    lines = (
        "daemon('daemon.count')",
        "(os.fork() == 0) and count('fork.count')",
        "threading.Thread(target=count, args=('thread.count',), daemon=True).start()",
        "return x",
    )
    child = zygote.fork(box, phase="build")
    child.load(body(*lines, before=WRITERS), Call(), {})
    child.call(Call((torch.ones(1),)))
    until(lambda: len([n for n in _counts(box).values() if n]) == 3)
    child.stop()
    before = _counts(box)
    time.sleep(0.1)
    assert _counts(box) == before and len(before) == 3
    child.stop()
    end = child.close()
    assert end["reason"] == "killed" and end["killed"] >= 3
    assert child.close() == end


def test_a_stop_of_what_has_ended_by_itself(zygote: Zygote, tmp_path: Path) -> None:
    """Nothing to stop: its own end is what `close` tells."""
    box = tmp_path / "box"
    child = zygote.fork(box)
    source = body("threading.Thread(target=end_when_told).start()", "return x", before=ENDS)
    child.load(source, Call(), {})
    child.call(Call((torch.ones(1),)))
    (box / "go").touch()
    until(lambda: not descendants(child._keeper._pid))
    child.stop()
    end = child.close()
    assert (end["reason"], end["exit"]) == ("", 3)
