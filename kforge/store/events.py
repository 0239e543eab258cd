"""The append-only log of a run (JSON lines) that everything else reads; kinds of events are in `schema`.

Progress, replay, resume and the UI all read this one log. It must not interpret events: it records them.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kforge.errors import KforgeError, UsageError
from kforge.store.candidates import CandidateStore
from kforge.store.faults import reason, storing
from kforge.store.schema import SCHEMA, TRANSIENT, check

LOG_NAME = "events.jsonl"


@dataclass(frozen=True)
class Event:
    """One line of the log. seq counts from 0 within a run; time in seconds since the epoch (UTC).

    Times of one process are as far apart as its events were, even where the clock was set: budgets count them.
    """

    seq: int
    time: float
    kind: str
    data: Mapping[str, Any]
    schema: int = SCHEMA

    def as_json(self) -> str:
        """One line of JSON, no newline at its end."""
        return encode({"schema": self.schema, "seq": self.seq, "time": self.time, "kind": self.kind, "data": self.data})


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be recorded in an event")


def encode(value: object) -> str:
    """Compact JSON of one value; paths become strings. NaN and infinity become null: JSON has neither."""
    try:
        return json.dumps(value, default=_plain, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_plain, separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", Path(name).stem).strip("-")[:40] or "task"


class RunLog:
    """The log of one run in `<root>/<id>/events.jsonl`, one writer at a time, each event on disk before the next.

    The id sorts by time: 20261129-155807-softmax-3fa21c. Use as a context manager, or call close().
    """

    def __init__(self, folder: Path) -> None:
        """Opens the log in `folder` for appending. UsageError when there is none, or another process writes it."""
        self.folder = Path(folder)
        self.path = self.folder / LOG_NAME
        if not self.path.is_file():
            raise UsageError(f"no run in {self.folder}", "`kforge runs list` shows what exists")
        with storing(self.path):
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._fd)
            raise UsageError(f"run {self.id} is being written by another process", "wait until it has ended") from error
        self._epoch = time.time() - time.monotonic()
        self._drop_torn_line()
        self._seq = sum(1 for _ in self.replay())

    @classmethod
    def create(cls, root: Path | str = ".kforge/runs", task: str = "") -> Self:
        """A new, empty run under `root` for the task with this path or name."""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        folder = Path(root) / f"{stamp}-{_slug(task)}-{secrets.token_hex(3)}"
        with storing(folder, "choose another folder by KFORGE_STATE, or `state` in kforge.toml"):
            folder.mkdir(parents=True)
            (folder / LOG_NAME).touch()
        return cls(folder)

    @property
    def id(self) -> str:
        """The run's name: the name of its folder."""
        return self.folder.name

    @property
    def candidates(self) -> CandidateStore:
        """The candidates of this run, by content, in the folder beside the log."""
        return CandidateStore(self.folder / "candidates")

    def append(self, kind: str, /, **data: Any) -> Event:
        """Record one event; it is on disk when this returns (a transient one: in the system's hands)."""
        check(kind, data)
        event = Event(self._seq, self._epoch + time.monotonic(), kind, data)
        line = (event.as_json() + "\n").encode()
        with storing(self.path, "what was found so far is in the folder of the run"):
            end = os.lseek(self._fd, 0, os.SEEK_END)
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError:
                os.ftruncate(self._fd, end)  # half a line would spoil the next one
                raise
            if kind not in TRANSIENT:
                os.fsync(self._fd)
        self._seq += 1
        return event

    def replay(self) -> Iterator[Event]:
        """The recorded events in order (see `replay`)."""
        return replay(self.path)

    def close(self) -> None:
        """Releases the log; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop_torn_line(self) -> None:
        # A crash in the middle of a write leaves a last line without its newline; appending to it would spoil two.
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.ftruncate(self._fd, whole)


def replay(path: Path) -> Iterator[Event]:
    """The events of a log file in order; a torn last line (crash while writing) is left out.

    KforgeError for a line that is damaged elsewhere, or for a schema newer than this version reads.
    """
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is torn or empty
        yield _parse(line, f"{path}:{number}")


def salvage(path: Path) -> tuple[list[Event], list[str]]:
    """What of a damaged log can be read, in order, and a line on each part that cannot. Never raises."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        return [], [f"{path} cannot be read: {reason(error)}"]
    events, damage = [], []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            events.append(_parse(line, f"{path}:{number}"))
        except KforgeError as error:
            damage.append(error.message)
    if lines[-1]:
        damage.append(f"{path}:{len(lines)}: the last line was cut off while it was written")
    return events, damage


def _parse(line: bytes, place: str) -> Event:
    try:
        raw = json.loads(line)
        event = Event(int(raw["seq"]), float(raw["time"]), raw["kind"], raw["data"], int(raw["schema"]))
        if not isinstance(event.kind, str) or not isinstance(event.data, dict) or not math.isfinite(event.time):
            raise TypeError("not an event")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise KforgeError(f"{place}: damaged event", "the lines before it can still be read") from error
    if event.schema > SCHEMA:
        raise KforgeError(
            f"{place}: schema {event.schema} is newer than this kforge reads ({SCHEMA})", "upgrade kforge"
        )
    return event
