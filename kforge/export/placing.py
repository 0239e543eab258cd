"""Puts an exported project into its folder: whole files, never over one that no export wrote or that was edited."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from kforge.errors import UsageError
from kforge.store.faults import storing

MANIFEST = "manifest.json"
HASHES = "files"
WRITING = "writing"  # hashes of an export that is in progress, or was cut off
FRESH = ".kforge-new-"  # files that are being written
ELSEWHERE = "choose another folder"
REPLACE = "have it replaced (kforge export --replace)"


def digest(data: bytes) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(data).hexdigest()


def sealed(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """The files as bytes; the manifest holds the hash of every other one."""
    data = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    manifest = json.loads(data[MANIFEST])
    manifest[HASHES] = {name: digest(content) for name, content in sorted(data.items()) if name != MANIFEST}
    return data | {MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}


def read_hashes(folder: Path) -> dict[str, set[str]]:
    """By name the hashes that the files of an export here may have: as it left them, or as one that was cut off wrote
    them. Empty where there was no export. UsageError: damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    found: dict[str, set[str]] = {}
    try:
        manifest: Any = json.loads(path.read_text())
        for name, value in (*manifest[HASHES].items(), *manifest.get(WRITING, {}).items()):
            found.setdefault(str(name), set()).add(str(value))
        outside = next((name for name in found if not _inside(folder, name)), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is not the manifest of an export", f"remove it, or {ELSEWHERE}") from error
    if outside is not None:
        raise UsageError(f"{path} names {outside}, which lies outside of {folder}", ELSEWHERE)
    return found


def _inside(folder: Path, name: str) -> bool:
    """Whether a file of this name lies in `folder`, links followed: a manifest may be anyone's."""
    return (folder / name).resolve().is_relative_to(folder.resolve())


def check_place(folder: Path, package: str = "", layout: str = "", replace: bool = False) -> None:
    """UsageError when an export into `folder` would lose something: foreign files, or files edited since.

    package, layout: what is to be written, "" where that is not known yet. Another one of an earlier export would be
    lost too; `replace` says that it may be.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", ELSEWHERE)
    if not folder.is_dir() or not any(path for path in folder.iterdir() if not path.name.startswith(FRESH)):
        return
    known = read_hashes(folder)
    if not known:
        raise UsageError(f"{folder} holds files that no export wrote", ELSEWHERE)
    for name, values in known.items():
        path = folder / name
        if path.is_symlink() or (path.is_file() and digest(path.read_bytes()) not in values):
            raise UsageError(f"{path} was edited since it was exported: it is kept", f"move it, or {ELSEWHERE}")
    other = _held(folder)
    if package and other != (package, layout) and not replace:
        held = f"{other[0]} in format {other[1]}" if other[0] == package else other[0]
        raise UsageError(f"{folder} holds another package, {held}: it is kept", f"{ELSEWHERE}, or {REPLACE}")


def _held(folder: Path) -> tuple[str, str]:
    """Package and format of the export in `folder`."""
    known = json.loads((folder / MANIFEST).read_text())
    return str(known.get("package")), str(known.get("format"))


def check_files(folder: Path, files: Mapping[str, Any]) -> None:
    """UsageError where one of these files would be written over one that no export wrote."""
    before = read_hashes(folder) if folder.is_dir() else {}
    for name in files:
        if not _inside(folder, name):
            raise UsageError(f"{folder / name} lies outside of {folder}: a link leads there", ELSEWHERE)
        if (folder / name).exists() and name not in before and name != MANIFEST:
            raise UsageError(f"{folder / name} was not written by an export: it is kept", f"move it, or {ELSEWHERE}")


def place(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write the files below `folder`, each whole or not at all; returns their paths.

    The manifest says first what will be written and last what was, so that an export that was cut off is told from
    files of the user's and can be made again. Files of an earlier export that are no longer part of it are removed; one
    export writes at a time. UsageError as check_place; also for a file that is in the way and that no export wrote.
    StoreError where the disk refuses.
    """
    with ExitStack() as stack:
        with storing(folder, ELSEWHERE):
            folder.mkdir(parents=True, exist_ok=True)
            held = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, held)
        with suppress(OSError):  # file systems that lock no folders
            fcntl.flock(held, fcntl.LOCK_EX)
        check_place(folder)
        check_files(folder, files)
        before = read_hashes(folder)
        with storing(folder, ELSEWHERE):
            for left in folder.rglob(f"{FRESH}*"):
                left.unlink(missing_ok=True)
            write(folder / MANIFEST, _announced(folder, before, files[MANIFEST]))
            for name in (*(n for n in sorted(files) if n != MANIFEST), MANIFEST):
                write(folder / name, files[name])
            for name in before.keys() - files.keys():
                (folder / name).unlink(missing_ok=True)
    return [folder / name for name in sorted(files)]


def _announced(folder: Path, before: Iterable[str], manifest: bytes) -> bytes:
    """The manifest while its export is written: the files as they are, and as they will be. before: their names."""
    path = folder / MANIFEST
    new: dict[str, Any] = json.loads(manifest)
    old: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    were = {name: digest((folder / name).read_bytes()) for name in before if (folder / name).is_file()}
    return json.dumps({**new, **old, HASHES: were, WRITING: new[HASHES]}, indent=1).encode() + b"\n"


def write(path: Path, data: bytes) -> None:
    """A file that appears whole or not at all, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, fresh = tempfile.mkstemp(prefix=FRESH, dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        os.replace(fresh, path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
