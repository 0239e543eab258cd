"""A content-addressed cache of build results, safe for several processes.

An entry is a folder named by the hash of everything that went into it. It is built under a lock into a temporary
folder and renamed into place, so a reader sees a whole entry or none. Its manifest, written last, has the digest of
every file; a process verifies an entry before its first use and builds again what does not match. In read-only mode a
miss is an error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kforge.errors import BuildError, MissingError

MANIFEST = "manifest.json"
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
NO_SPACE = os.strerror(errno.ENOSPC)
_ROOM = "set KFORGE_CACHE, or TMPDIR, to a folder that can be written and has room"
_read_only = False
_misses = 0  # builds that were asked for and not there, while the cache was read-only
_sound: set[Path] = set()  # entries that this process has verified or built


def cache_root() -> Path:
    """KFORGE_CACHE, else ~/.cache/kforge (XDG_CACHE_HOME respected)."""
    if explicit := os.environ.get("KFORGE_CACHE"):
        return Path(explicit).expanduser().absolute()  # compilers run in a folder of their own
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


def misses() -> int:
    """How many builds this process has asked a read-only cache for in vain."""
    return _misses


def content_key(**parts: object) -> str:
    """The hash (32 hex digits) of named parts, each rendered as JSON."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_cached(kind: str, key: str) -> bool:
    """Whether entry `key` under `kind` is there."""
    return (cache_root() / kind / key).is_dir()


def cached(kind: str, key: str, what: str, build: Callable[[Path], None]) -> Path:
    """The folder of entry `key` under `kind`, made by `build(folder)` if it is not there yet.

    what: the specialisation in words, for the error of a miss in read-only mode. MissingError where the cache cannot
    be written.
    """
    global _misses
    root = cache_root() / kind
    entry = root / key
    if _is_sound(entry):
        return entry
    if is_read_only():
        _misses += 1
        state = "damaged" if entry.is_dir() else "not"
        raise BuildError(
            f"{state} in the read-only cache: {what}",
            "the warm step builds every specialisation (dtype, alignment, shape class) before the run",
        )
    with _written(root):
        root.mkdir(parents=True, exist_ok=True)
        with (root / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_sound(entry):  # another process built it meanwhile
                return entry
            folder = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=root))
            try:
                build(folder)
                (folder / MANIFEST).write_text(json.dumps(_digests(folder), indent=1))
                _remove(entry)
                folder.rename(entry)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    _sound.add(entry)
    return entry


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of every file below a folder but the manifest."""
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _is_sound(entry: Path) -> bool:
    """Whether an entry is there and what its manifest says, file by file; read once in a process (1 GB/s)."""
    if entry in _sound or entry.is_symlink():  # a link: shared with a candidate by a judge who has verified its target
        return entry.is_dir()
    try:
        sound = json.loads((entry / MANIFEST).read_text()) == _digests(entry)
    except (OSError, ValueError):  # absent, unreadable, or no JSON
        return False
    if sound:
        _sound.add(entry)
    return sound


def _remove(entry: Path) -> None:
    """What stands where an entry goes: a damaged one, or anything else."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def no_room(folder: Path) -> MissingError:
    """The disk is full: the error for what was to be built in this folder."""
    return MissingError(f"no room for building in {folder} or {tempfile.gettempdir()}", _ROOM)


@contextlib.contextmanager
def _written(root: Path) -> Iterator[None]:
    """A cache that cannot be written is no fault of what is built: MissingError, with the folder and the reason."""
    try:
        yield
    except OSError as error:
        within = error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(root.parent)
        if not within and error.errno not in _DISK_ERRORS:
            raise
        raise MissingError(f"the build cache {root.parent} cannot be written: {error.strerror}", _ROOM) from error
    except BuildError as error:
        if NO_SPACE not in f"{error.message}\n{error.log}":
            raise
        raise no_room(root.parent) from error
