"""Runs whose process died: their record is ended and their working folders are removed, live runs are left alone.

A live run holds the lock of its log; the system releases it however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kforge.store.events import LOG_NAME
from kforge.store.index import Index

DIED = "died"  # status in the index of a run that never ended
WORK = "work"  # folder of a run in which candidates' processes work
_EMPTY_S = 60.0  # an empty log this old is no run that is just being made


def sweep_runs(runs: Path, index: Index) -> list[str]:
    """End what died; returns the ids. Log, candidates and reports stay: `kforge runs show` reads them."""
    ended = []
    for run, folder in index.unfinished():
        with _claimed(folder / LOG_NAME) as dead:
            if dead:
                shutil.rmtree(folder / WORK, ignore_errors=True)
                for part in (folder / "candidates").glob(".new-*"):
                    shutil.rmtree(part, ignore_errors=True)
                index.finish_run(run, status=DIED, verdict="untimed", exit_code=1)
                ended.append(run)
    for log in runs.glob(f"*/{LOG_NAME}"):
        if _is_empty(log):
            with _claimed(log) as dead:
                if dead:
                    shutil.rmtree(log.parent, ignore_errors=True)
    return ended


def _is_empty(log: Path) -> bool:
    try:
        seen = log.stat()
    except OSError:
        return False
    return seen.st_size == 0 and time.time() - seen.st_mtime > _EMPTY_S


@contextmanager
def _claimed(log: Path) -> Iterator[bool]:
    """Whether no process writes this log; nobody can begin to while the block runs."""
    try:
        fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(fd)
