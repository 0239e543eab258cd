"""Files given to the user: written atomically, and never over something kforge did not write.

A manifest in the folder holds the hash of every file written there; a file that is absent from it, or that was
edited since, is the user's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from kforge.errors import UsageError
from kforge.store.faults import reason, storing

MANIFEST = ".kforge-manifest.json"
TEMPORARY = ".kforge-new-"
STALE_S = 3600.0  # a temporary file this old was left behind by a process that died
ELSEWHERE = "choose another folder with --out"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_manifest(folder: Path) -> dict[str, list[str]]:
    try:
        raw = json.loads((folder / MANIFEST).read_text())
        return {str(name): [str(item) for item in hashes] for name, hashes in raw["files"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{folder / MANIFEST} cannot be read: {reason(error)}", ELSEWHERE) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder / MANIFEST} is damaged", "remove it, or choose another folder with --out") from error


def _replace(path: Path, data: bytes) -> None:
    fd, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(file.fileno(), 0o666 & ~umask)  # mkstemp makes private files
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_manifest(folder: Path, files: Mapping[str, list[str]]) -> None:
    _replace(folder / MANIFEST, json.dumps({"schema": 1, "files": dict(sorted(files.items()))}, indent=1).encode())


def check_outputs(folder: Path, names: Iterable[str]) -> None:
    """UsageError if writing these names into `folder` would overwrite a file that kforge did not write, or would fail.

    Call it before a long search, so that the refusal does not come at its end. It writes a file on trial, in the
    nearest folder that exists, and removes it: two processes with one output folder do not see each other's trial.
    """
    _refuse_foreign(folder, names)
    try:
        fd, trial = tempfile.mkstemp(prefix=TEMPORARY, dir=_nearest(folder))
        try:
            os.write(fd, bytes(4096))
            os.fsync(fd)
        finally:
            os.close(fd)
            os.unlink(trial)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {reason(error)}", ELSEWHERE) from error


def _nearest(folder: Path) -> Path:
    """`folder`, or what exists of the way to it."""
    absolute = folder.absolute()
    return next((part for part in (absolute, *absolute.parents) if part.exists()), absolute)


def _refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    above = _nearest(folder)
    if above.exists() and not above.is_dir():
        raise UsageError(f"{above} is not a folder", "choose another with --out")
    manifest = _read_manifest(folder)
    for name in names:
        path = folder / name
        if (path.exists() or path.is_symlink()) and not _is_ours(path, manifest.get(name, [])):
            how = "was edited since kforge wrote it" if name in manifest else "was not written by kforge"
            raise UsageError(f"{path} {how}: it is kept", f"move or remove it, or {ELSEWHERE}")


def _is_ours(path: Path, hashes: list[str]) -> bool:
    try:
        return path.is_file() and not path.is_symlink() and _digest(path.read_bytes()) in hashes
    except OSError:  # unreadable: whose it is cannot be told
        return False


def write_outputs(folder: Path, files: Mapping[str, str], hint: str = ELSEWHERE) -> list[Path]:
    """Write name -> text into `folder` (made if absent); returns the paths in order of name.

    Each file appears whole or not at all. Files of an earlier call that are not in `files` are removed if unedited
    (a stale .cu beside a new module would be misleading). UsageError as `check_outputs`; StoreError, with `hint`, where
    the disk refuses.
    """
    folder = Path(folder)
    _refuse_foreign(folder, files)
    with storing(folder, hint):
        return _write(folder, files)


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    before = _read_manifest(folder)
    data = {name: text.encode() for name, text in files.items()}
    # The new hashes enter before the files: after a crash in between, either content is known as ours.
    _write_manifest(folder, before | {name: [*before.get(name, []), _digest(item)] for name, item in data.items()})
    for name in sorted(data):
        _replace(folder / name, data[name])
    kept = {}
    for name, hashes in before.items():
        path = folder / name
        if name not in data and path.exists():
            if _is_ours(path, hashes):
                path.unlink()
            else:
                kept[name] = hashes
    _write_manifest(folder, kept | {name: [_digest(item)] for name, item in data.items()})
    return [folder / name for name in sorted(data)]


def _sweep(folder: Path) -> None:
    """Remove temporary files of processes that died between making and naming them."""
    for path in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()
