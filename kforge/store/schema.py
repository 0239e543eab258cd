"""The versioned schema of a run's events: which kinds there are, and what each carries."""

# No `from __future__ import annotations` here: TypedDict reads Required from real annotations only.

from collections.abc import Mapping
from typing import Any, Required, TypedDict

from kforge.errors import KforgeError

SCHEMA = 1


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


def check(kind: str, data: Mapping[str, Any]) -> None:
    """An unknown kind or a missing required field is a KforgeError; further fields are allowed.

    That is what lets an older reader skip what a newer writer added.
    """
    if kind not in PAYLOADS:
        raise KforgeError(f"unknown event kind {kind!r}", "kinds: " + ", ".join(PAYLOADS))
    missing = sorted(PAYLOADS[kind].__required_keys__ - data.keys())
    if missing:
        raise KforgeError(f"event {kind!r} lacks {', '.join(missing)}")
