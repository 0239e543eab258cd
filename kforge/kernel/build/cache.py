"""A content-addressed cache of build results, safe for several processes.

An entry is a folder named by the hash of everything that went into it. It is built under a lock into a temporary
folder and renamed into place, so a reader sees a whole entry or none. In read-only mode a miss is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kforge.errors import BuildError

_read_only = False


def cache_root() -> Path:
    """KFORGE_CACHE, else ~/.cache/kforge (XDG_CACHE_HOME respected)."""
    if explicit := os.environ.get("KFORGE_CACHE"):
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kforge"


@contextlib.contextmanager
def read_only_cache(enabled: bool = True) -> Iterator[None]:
    """Within, every build must already be in the cache; a miss is a BuildError that names the specialisation."""
    global _read_only
    before, _read_only = _read_only, enabled
    try:
        yield
    finally:
        _read_only = before


def is_read_only() -> bool:
    """Whether a read_only_cache() is in force (or KFORGE_CACHE_READ_ONLY=1 in the environment)."""
    return _read_only or os.environ.get("KFORGE_CACHE_READ_ONLY") == "1"


def content_key(**parts: object) -> str:
    """The hash (32 hex digits) of named parts, each rendered as JSON."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_cached(kind: str, key: str) -> bool:
    """Whether entry `key` under `kind` is there."""
    return (cache_root() / kind / key).is_dir()


def cached(kind: str, key: str, what: str, build: Callable[[Path], None]) -> Path:
    """The folder of entry `key` under `kind`, made by `build(folder)` if it is not there yet.

    what: the specialisation in words, for the error of a miss in read-only mode.
    """
    root = cache_root() / kind
    entry = root / key
    if entry.is_dir():
        return entry
    if is_read_only():
        raise BuildError(
            f"not in the read-only cache: {what}",
            "the warm step builds every specialisation (dtype, alignment, shape class) before the run",
        )
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if entry.is_dir():  # another process built it meanwhile
            return entry
        folder = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=root))
        try:
            build(folder)
            folder.rename(entry)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return entry
