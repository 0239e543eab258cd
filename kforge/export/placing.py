"""Puts an exported project into its folder: whole files, never over one that no export wrote or that was edited."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kforge.errors import UsageError
from kforge.store.faults import storing

MANIFEST = "manifest.json"
HASHES = "files"
ELSEWHERE = "choose another folder"


def digest(data: bytes) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(data).hexdigest()


def sealed(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """The files as bytes; the manifest holds the hash of every other one."""
    data = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    manifest = json.loads(data[MANIFEST])
    manifest[HASHES] = {name: digest(content) for name, content in sorted(data.items()) if name != MANIFEST}
    return data | {MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}


def read_hashes(folder: Path) -> dict[str, str]:
    """Hash by name of the files that an earlier export wrote here; empty where there was none. UsageError: damaged."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        found: Any = json.loads(path.read_text())[HASHES]
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not the manifest of an export", f"remove it, or {ELSEWHERE}") from error


def check_place(folder: Path) -> None:
    """UsageError when an export into `folder` would lose something: foreign files, or files edited since."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", ELSEWHERE)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    known = read_hashes(folder)
    if not known:
        raise UsageError(f"{folder} holds files that no export wrote", ELSEWHERE)
    for name, value in known.items():
        path = folder / name
        if path.is_symlink() or (path.is_file() and digest(path.read_bytes()) != value):
            raise UsageError(f"{path} was edited since it was exported: it is kept", f"move it, or {ELSEWHERE}")


def place(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write the files below `folder`, each whole or not at all, the manifest last; returns their paths.

    Files of an earlier export that are no longer part of it are removed. UsageError as check_place; also for a file
    that is in the way and that no export wrote. StoreError where the disk refuses.
    """
    check_place(folder)
    before = read_hashes(folder) if folder.is_dir() else {}
    for name in files:
        if (folder / name).exists() and name not in before and name != MANIFEST:
            raise UsageError(f"{folder / name} was not written by an export: it is kept", f"move it, or {ELSEWHERE}")
    with storing(folder, ELSEWHERE):
        for name in (*(n for n in sorted(files) if n != MANIFEST), MANIFEST):
            write(folder / name, files[name])
        for name in before.keys() - files.keys():
            (folder / name).unlink(missing_ok=True)
    return [folder / name for name in sorted(files)]


def write(path: Path, data: bytes) -> None:
    """A file that appears whole or not at all, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, fresh = tempfile.mkstemp(prefix=".kforge-new-", dir=path.parent)
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
