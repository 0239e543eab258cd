"""What the disk and SQLite refuse, as a StoreError: one line that names the place and the reason, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kforge.errors import StoreError


def reason(error: OSError | sqlite3.Error) -> str:
    """The system's own words: `No space left on device`."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


@contextmanager
def storing(path: Path, hint: str = "", doing: str = "written") -> Iterator[None]:
    """Run the block, which writes (or reads: `doing`) `path`; OSError and sqlite3.Error become a StoreError."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path} cannot be {doing}: {reason(error)}", hint) from error
