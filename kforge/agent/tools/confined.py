"""Paths that others name, kept below a folder: links resolved first, whatever cannot be a path said in words."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kforge.errors import UsageError


def inside(root: Path, path: str) -> Path | None:
    """The real path that `path` means below `root`, itself real; None where it leads out. UsageError: no path."""
    try:
        real = Path(os.path.realpath(root / path))
        os.fsencode(real)
    except ValueError as error:  # a null character, half a surrogate pair
        raise UsageError(f"{path[:200]!r} is no path") from error
    return real if real.is_relative_to(root) else None


def is_file(path: Path) -> bool:
    """A plain file that can be asked for: no folder, pipe or device, nothing too long or closed to us."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """A folder that can be asked for."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False
