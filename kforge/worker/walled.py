"""Puts walls up and becomes a profiler: `python -m kforge.worker.walled WALLS FOLDER READABLE COMMAND...`.

The profiler stands behind them with what it profiles: it reads a foreign cubin, too. FOLDER is its own to write.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kforge.worker import landlock, sandbox

# every wall of a candidate's build; the same with capabilities kept; only what it can open and write
FULL, PRIVILEGED, FILES = "full", "privileged", "files"
WALLS = (FULL, PRIVILEGED, FILES)
_NO_NEW_PRIVS = 38


def main(walls: str, folder: Path, readable: Path, command: Sequence[str]) -> None:
    """Never returns. ValueError for walls that do not exist."""
    shared = (Path("/dev/shm"),) if walls == FILES else ()
    policy = sandbox.Policy("build", folder, (readable,), shared)
    if walls == FILES:
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)  # Landlock asks for it
        landlock.restrict(sandbox._rules(policy), files_only=True)
    elif walls in (FULL, PRIVILEGED):
        sandbox.apply(policy, capabilities=walls == PRIVILEGED)
    else:
        raise ValueError(f"unknown walls {walls!r}; available: {', '.join(WALLS)}")
    os.execv(command[0], list(command))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
