"""The versioned event schema of a run, and the append-only log (JSON lines) that everything else reads.

Progress, replay, resume and the UI all read this one log. It must not interpret events: it records them.
"""

# No `from __future__ import annotations` here: TypedDict reads Required from real annotations only.

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
from typing import Any, Required, Self, TypedDict

from kforge.errors import KforgeError, UsageError
from kforge.store.candidates import CandidateStore
from kforge.store.faults import reason, storing

SCHEMA = 1
LOG_NAME = "events.jsonl"


class RunStarted(TypedDict, total=False):
    """A run begins: the task's path and the options it was started with."""

    task: Required[str]
    options: dict[str, Any]
    version: str  # of kforge


class TaskLoaded(TypedDict, total=False):
    """op.py was read. form: module, function, triton or helion; digest of its source."""

    task: str
    form: str
    digest: str


class TaskInspected(TypedDict, total=False):
    """The reference was run: shapes of inputs and outputs in words, what is degenerate, mutated, redirected."""

    inputs: list[str]
    outputs: list[str]
    degenerate: bool
    notes: list[str]


class Captured(TypedDict, total=False):
    """The graph was captured: number of operators, bytes read and written, operations by kind."""

    operators: int
    read_bytes: int
    write_bytes: int
    flops: dict[str, float]


class BaselineTimed(TypedDict, total=False):
    """One baseline's median time in milliseconds."""

    name: str
    ms: float


class Floor(TypedDict, total=False):
    """The physical floor (CONTRACTS 5) in milliseconds, which limit binds, and whether it leaves room."""

    floor_ms: float
    bound: str
    source: str
    no_room: bool


class Proposed(TypedDict, total=False):
    """A candidate was proposed: its digest, by whom, from which parent, with which idea and expected gain."""

    candidate: Required[str]
    proposer: str
    parent: str | None
    idea: str
    expected_gain: float | None
    node: int  # of the search's tree, and its parent there
    parent_node: int | None
    direction: str
    files: list[str]


class Building(TypedDict, total=False):
    """A candidate is being built, for an architecture."""

    candidate: str
    arch: str
    kernels: list[str]


class GateDone(TypedDict, total=False):
    """One gate has ended. passed None: not run, `detail` says why."""

    candidate: str
    name: Required[str]
    passed: Required[bool | None]
    detail: str
    seconds: float


class CaseDone(TypedDict, total=False):
    """One case of the input plan was compared, e.g. "variant 0, seed 3, x0.01, strided"."""

    candidate: str
    label: Required[str]
    passed: Required[bool]


class Evaluated(TypedDict, total=False):
    """A candidate has its Report; `report` is the whole of it as JSON when it is recorded."""

    candidate: Required[str]
    status: Required[str]
    verdict: str
    plan: str
    speedup: float | None
    ms: float | None
    report: dict[str, Any]
    node: int
    reward: float | None
    failure: str  # first line of what failed
    constraints: list[str]  # the standing rules that it was judged under


class Tuned(TypedDict, total=False):
    """Tuning has ended with the winning constants, in a child of the candidate."""

    candidate: str
    parent: str
    table: list[Any]


class Best(TypedDict, total=False):
    """A candidate is the best so far."""

    candidate: Required[str]
    speedup: float | None
    ms: float | None


class Written(TypedDict, total=False):
    """Files were given to the user."""

    files: Required[list[str]]
    folder: str


class Message(TypedDict, total=False):
    """A sentence for the person who watches. level: info or warning."""

    text: Required[str]
    level: str


class ErrorEvent(TypedDict, total=False):
    """An error as --json prints it."""

    kind: str
    message: Required[str]
    hint: str


class RunFinished(TypedDict, total=False):
    """The run has ended, and how."""

    status: str
    verdict: str
    exit_code: int
    seconds: float


class NodeChanged(TypedDict, total=False):
    """What the search thinks of a node of its tree now. pruned: why it is a dead end, "" if it is not."""

    node: Required[int]
    reward: float | None
    visits: int
    value: float
    pruned: str


class ModelStarted(TypedDict, total=False):
    """A chat model was asked. call: number of the call in this run; role: of kforge.agent.roles."""

    call: Required[int]
    role: str
    model: str


class ModelText(TypedDict, total=False):
    """A piece of an answer as it arrives."""

    call: Required[int]
    text: Required[str]


class ModelCall(TypedDict, total=False):
    """A paid call is complete. request: digest of what was sent; message: the whole answer, so that it is paid once."""

    call: Required[int]
    role: str
    model: str
    request: str
    message: dict[str, Any]
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    usd: float | None  # None: the price is unknown
    seconds: float
    finish: str
    conversation: int
    added: list[dict[str, Any]]  # what was said to the model since its last answer, tools' answers left out
    estimated: bool  # the endpoint reported no tokens
    refused: bool


class ConversationChanged(TypedDict, total=False):
    """A conversation with a model began or ended. node: the attempt it starts from; candidate: what it yielded."""

    conversation: Required[int]
    state: Required[str]  # began or ended
    node: int
    proposer: str
    reason: str
    candidate: str | None


class ToolCall(TypedDict, total=False):
    """A tool was used by a model: with which arguments, and what it answered in words."""

    call: int
    tool: Required[str]
    arguments: Any
    result: str
    error: bool
    seconds: float


class MeterRead(TypedDict, total=False):
    """What the run has used so far, and what is left of each budget."""

    tokens_in: int
    tokens_out: int
    tokens_cached: int
    usd: float
    evaluations: int
    seconds: float
    left: dict[str, Any]


class Steered(TypedDict, total=False):
    """A message of the developer. when: now or queued; state: received, taken, edited or dropped."""

    id: Required[int]
    text: Required[str]
    when: Required[str]
    state: Required[str]


class ConstraintChanged(TypedDict, total=False):
    """A standing rule, as CONSTRAINTS writes it, was added or removed. origin: what asked for it."""

    name: Required[str]
    action: Required[str]
    origin: str


class Compacted(TypedDict, total=False):
    """A conversation was shortened: tokens before and after."""

    call: int
    before: int
    after: int


class LessonKept(TypedDict, total=False):
    """What an attempt taught, as the memory keeps it. gain: the factor achieved over the parent."""

    family: str
    shape_class: str
    chip: str
    direction: str
    outcome: str
    gain: float | None
    text: str


class ProfiledEvent(TypedDict, total=False):
    """A candidate was profiled; profile is the object of `kforge profile --json`."""

    candidate: Required[str]
    profile: dict[str, Any]


class HunkDecided(TypedDict, total=False):
    """The developer accepted or rejected one hunk of a candidate's diff, and why."""

    candidate: Required[str]
    hunk: int | str
    action: str
    reason: str


class Accepted(TypedDict, total=False):
    """A candidate was put beside its op.py."""

    candidate: Required[str]
    files: list[str]
    folder: str


class Undone(TypedDict, total=False):
    """The last accept was taken back."""

    files: list[str]


class Exported(TypedDict, total=False):
    """A package was made of a candidate. stamp: the first line of its README where it is not faster."""

    candidate: Required[str]
    folder: str
    format: str
    stamp: str


class Stopped(TypedDict, total=False):
    """The developer stopped the run; its state is saved."""

    seconds: float


class Resumed(TypedDict, total=False):
    """A run that had ended or died goes on in the same log. seconds: spent before."""

    options: dict[str, Any]
    seconds: float


PAYLOADS: dict[str, Any] = {
    "run_started": RunStarted,
    "task_loaded": TaskLoaded,
    "task_inspected": TaskInspected,
    "captured": Captured,
    "baseline_timed": BaselineTimed,
    "floor": Floor,
    "proposed": Proposed,
    "building": Building,
    "case": CaseDone,
    "gate": GateDone,
    "evaluated": Evaluated,
    "tuned": Tuned,
    "best": Best,
    "written": Written,
    "message": Message,
    "error": ErrorEvent,
    "run_finished": RunFinished,
    "node": NodeChanged,
    "model_started": ModelStarted,
    "model_text": ModelText,
    "model_call": ModelCall,
    "conversation": ConversationChanged,
    "tool_call": ToolCall,
    "meter": MeterRead,
    "steer": Steered,
    "constraint": ConstraintChanged,
    "compacted": Compacted,
    "lesson": LessonKept,
    "profiled": ProfiledEvent,
    "hunk": HunkDecided,
    "accepted": Accepted,
    "undone": Undone,
    "exported": Exported,
    "stopped": Stopped,
    "resumed": Resumed,
}


# Written like the others, but not waited for: there may be hundreds a second, and their loss in a crash costs nothing.
TRANSIENT = frozenset({"building", "case", "node", "model_text", "meter"})


@dataclass(frozen=True)
class Event:
    """One line of the log. seq counts from 0 within a run; time in seconds since the epoch (UTC)."""

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


def check(kind: str, data: Mapping[str, Any]) -> None:
    """An unknown kind or a missing required field is a KforgeError; further fields are allowed.

    That is what lets an older reader skip what a newer writer added.
    """
    if kind not in PAYLOADS:
        raise KforgeError(f"unknown event kind {kind!r}", "kinds: " + ", ".join(PAYLOADS))
    missing = sorted(PAYLOADS[kind].__required_keys__ - data.keys())
    if missing:
        raise KforgeError(f"event {kind!r} lacks {', '.join(missing)}")


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
        event = Event(self._seq, time.time(), kind, data)
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
