"""Accept: a candidate's files beside its op.py, as one entry that can be undone. op.py itself is never edited.

The entry is written before the files: after a crash in between, undo still knows what each file was.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kforge.errors import KforgeError, UsageError
from kforge.store.faults import storing

FOLDER = "accepted"


@dataclass(frozen=True)
class Entry:
    """One accept. before: text of each file that was there, None where there was none; after: SHA-256 of what is now.

    folder: where the files lie. undone: whether it was taken back.
    """

    number: int
    time: float
    task: str
    folder: str
    candidate: str
    before: dict[str, str | None]
    after: dict[str, str]
    undone: bool = False


def entries(state: Path) -> list[Entry]:
    """Every accept of this project, oldest first. KforgeError for an entry that cannot be read."""
    found = []
    for path in sorted((state / FOLDER).glob("*.json")):
        try:
            found.append(Entry(**json.loads(path.read_text())))
        except (OSError, ValueError, TypeError) as error:
            raise KforgeError(f"{path} is damaged", "move it away: what it accepted can then not be undone") from error
    return found


def accept(task: Path, candidate: str, files: Mapping[str, str], folder: Path, state: Path) -> Entry:
    """Write a candidate's files into `folder`; returns the entry.

    UsageError for a file that is there and that no accept wrote, or that was edited since.
    """
    if task.name in files:
        raise UsageError(f"the candidate has a file named {task.name}", "op.py is never overwritten")
    with _alone(state):
        return _accept(task, candidate, files, folder, state)


def _accept(task: Path, candidate: str, files: Mapping[str, str], folder: Path, state: Path) -> Entry:
    known = entries(state)
    before: dict[str, str | None] = {}
    for name, text in files.items():
        path = folder / name
        before[name] = _text(path)
        if path.is_symlink() or (path.exists() and before[name] is None):
            raise UsageError(f"{path} is no text file: it is kept", "move it, or accept into another folder")
        if before[name] not in (None, text) and not _is_ours(path, _digest(before[name] or ""), known):
            raise UsageError(
                f"{path} was not written by an accept, or was edited since: it is kept",
                "move or remove it, or accept into another folder",
            )
    number = known[-1].number + 1 if known else 1
    after = {name: _digest(text) for name, text in files.items()}
    entry = Entry(number, time.time(), str(task), str(folder), candidate, before, after)
    _record(entry, state)
    with storing(folder, "`kforge accept --undo` restores what was there"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in sorted(files.items()):
            _replace(folder / name, text)
    return entry


def undo(state: Path, task: Path | None = None) -> Entry:
    """Take back the last accept (of `task` where given). UsageError: there is none, or a file was edited since."""
    with _alone(state):
        return _undo(state, task)


def _undo(state: Path, task: Path | None) -> Entry:
    open_entries = [e for e in entries(state) if not e.undone and (task is None or Path(e.task) == task)]
    if not open_entries:
        raise UsageError("there is no accept to undo", f"entries lie in {state / FOLDER}")
    entry = open_entries[-1]
    folder = Path(entry.folder)
    for name, digest in entry.after.items():
        path = folder / name
        text = _text(path)
        other = text is None and (path.exists() or path.is_symlink())  # no text, so nothing that an accept wrote
        if other or (text != entry.before[name] and (text is None or _digest(text) != digest)):
            raise UsageError(f"{folder / name} was edited since it was accepted: nothing is undone", "move it first")
    with storing(folder, "run it again when there is room"):
        for name, old in entry.before.items():
            if old is None:
                (folder / name).unlink(missing_ok=True)
            else:
                _replace(folder / name, old)
    undone = Entry(**{**asdict(entry), "undone": True})
    _record(undone, state)
    return undone


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Accepts of several processes come one after the other: each has its own number and knows the earlier ones."""
    folder = state / FOLDER
    with ExitStack() as stack:
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(folder / "lock", "w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _record(entry: Entry, state: Path) -> None:
    folder = state / FOLDER
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / f"{entry.number:06d}.json", json.dumps(asdict(entry), indent=1) + "\n")


def _replace(path: Path, text: str) -> None:
    from kforge.export.placing import write

    write(path, text.encode())


def _text(path: Path) -> str | None:
    """None where there is no file of text; a pipe is not waited for."""
    try:
        return path.read_bytes().decode() if path.is_file() else None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_ours(path: Path, digest: str, known: list[Entry]) -> bool:
    return any(Path(e.folder) == path.parent and e.after.get(path.name) == digest and not e.undone for e in known)
