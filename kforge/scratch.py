"""Temporary folders that do not outlive their process: all under one folder in TMPDIR, locked while the process lives.

What a killed process left is removed by a later start (`sweep`): the system released its lock.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from kforge.errors import StoreError

_LOCK = ".lock"
_UNLOCKED_S = 3600.0  # a folder without a lock is this old before it counts as left behind
_own: tuple[int, Path, int] | None = None  # process, folder, descriptor of the lock


def root() -> Path:
    """This process's own temporary folder, made on first use and removed by `remove` or at the interpreter's exit."""
    global _own
    if _own is None or _own[0] != os.getpid():
        try:
            folder = Path(tempfile.mkdtemp(prefix=_prefix()))
            fresh = folder / f"{_LOCK}.new"
            lock = os.open(fresh, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh.rename(folder / _LOCK)  # locked from its first moment: a sweep takes what is not for left behind
        except OSError as error:
            words = f"no temporary folder can be made: {error.strerror or error}"
            raise StoreError(words, "set TMPDIR to a folder that can be written") from error
        _own = (os.getpid(), folder, lock)
        atexit.register(remove)
    return _own[1]


def make(purpose: str) -> Path:
    """A new folder in it, its name beginning with `purpose`."""
    return Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=root()))


def remove() -> None:
    """Remove this process's folder, if it has one."""
    global _own
    if _own is not None and _own[0] == os.getpid():
        _, folder, lock = _own
        _own = None
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove the folders of this user's processes that have ended without doing so."""
    try:
        found = list(Path(tempfile.gettempdir()).glob(f"{_prefix()}*"))
    except OSError:
        return  # no temporary folder: nothing of ours can lie there
    for folder in found:
        with contextlib.suppress(OSError):  # another process sweeps, or it is not ours to remove
            if _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _prefix() -> str:
    return f"kforge-{os.getuid()}-"


def _abandoned(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > _UNLOCKED_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
