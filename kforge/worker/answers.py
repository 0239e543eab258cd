"""Reading what a child says: every answer is checked for its form before a word of it is used.

A child may answer anything. What lacks a field or has it in a wrong form is ChildFailed("protocol").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kforge.errors import ChildFailed
from kforge.worker.protocol import TensorMeta, decode
from kforge.worker.replies import Armed, CallReply, DeviceEvent, Inspected, KernelTime, LoadReply, Recorded
from kforge.worker.tensors import nbytes_of

if TYPE_CHECKING:
    import torch

    from kforge.task.call import Call

_MOST_ROWS = 10_000


@contextmanager
def well_formed() -> Iterator[None]:
    """Around the reading of an answer."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ChildFailed("protocol", f"a malformed answer: {error!r}") from error


def failure(answer: Mapping[str, Any], log: str) -> ChildFailed:
    """The failure that an answer with ok other than True reports: raised, or crashed."""
    error = answer.get("error")
    details = {str(k): str(v) for k, v in error.items()} if isinstance(error, dict) else {}
    details = details and {"message": "", "hint": "", **details}
    kind = "crashed" if answer.get("kind") == "crashed" else "raised"
    return ChildFailed(kind, str(answer.get("text", "")), log, details)


def load_reply(answer: Mapping[str, Any], seconds: float) -> LoadReply:
    """Which keys of the state did not fit."""
    names = {k: tuple(map(str, answer[k])) for k in ("missing", "unexpected", "mismatched", "redirected")}
    return LoadReply(**names, seconds=seconds)


def armed(answer: Mapping[str, Any]) -> Armed:
    """What can be timed, and what each wrapper lacks."""
    problems = {str(name): str(text) for name, text in answer["problems"].items()}
    times = {name: float(answer[name]) for name in ("seconds", "once_s", "first_s", "host_us")}
    return Armed(**times, problems=problems)


def recorded(answer: Mapping[str, Any]) -> Recorded:
    """Which launches are kept."""
    return Recorded(int(answer["launches"]), float(answer["seconds"]), tuple(map(str, answer["left_out"])))


def timings(answer: Mapping[str, Any], iterations: int) -> tuple[float, ...]:
    """Milliseconds of each call."""
    ms = answer["ms"]
    if not isinstance(ms, list) or len(ms) != iterations or not all(type(t) is float and t >= 0 for t in ms):
        raise ValueError("timings")
    return tuple(ms)


def rows(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of objects."""
    found = answer[key]
    if not isinstance(found, list) or len(found) > _MOST_ROWS or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"a malformed list of {key}")
    return found


def inspected(answer: Mapping[str, Any]) -> list[Inspected]:
    """What each tool of the memory gate says."""
    return [
        Inspected(
            tool=str(row["mode"]),
            seconds=float(row["seconds"]),
            findings=tuple({str(k): v for k, v in finding.items()} for finding in rows(row, "findings")),
            skipped=str(row["skipped"]),
        )
        for row in rows(answer, "inspected")
    ]


def kernel_times(answer: Mapping[str, Any]) -> list[KernelTime]:
    """Device time by kernel."""
    found = [KernelTime(str(row["name"]), float(row["us"]), int(row["count"])) for row in rows(answer, "kernels")]
    if not all(math.isfinite(k.us) and k.us >= 0 for k in found):
        raise ValueError("device times")
    return found


def events(answer: Mapping[str, Any]) -> list[DeviceEvent]:
    """What the device did, in order."""
    found = [DeviceEvent(str(row["name"]), float(row["start"]), float(row["us"])) for row in rows(answer, "events")]
    if not all(math.isfinite(e.start) and math.isfinite(e.us) and e.us >= 0 for e in found):
        raise ValueError("device events")
    return sorted(found, key=lambda event: event.start)


def described(answer: Mapping[str, Any], limit: int) -> list[TensorMeta]:
    """The tensors that an answer announces. More than `limit` bytes in all are refused before any is copied."""
    metas = [TensorMeta.parse(meta) for meta in answer["metas"]]
    total = sum(map(nbytes_of, metas))
    if total > limit:
        raise ChildFailed("protocol", f"outputs of {total} bytes; the limit is {limit}")
    return metas


def call_reply(
    answer: Mapping[str, Any],
    metas: Sequence[TensorMeta],
    tensors: Sequence[torch.Tensor],
    inputs: Sequence[int],
    after: Call,
    wall: float,
) -> CallReply:
    """The answer to a call with the values that were fetched for it. inputs: buffer of each input tensor in order."""
    used: list[int] = []

    def take(index: int) -> Any:
        used.append(index)
        return tensors[index]

    outputs = decode(answer["tree"], take)
    count = len(used)
    state = decode(answer["state"], take)
    named = isinstance(state, dict) and all(hasattr(value, "dtype") for value in state.values())
    if used != list(range(len(tensors))) or not named:
        raise ChildFailed("protocol", "leaves of the answer that do not add up")
    home = {storage: number for number, storage in reversed(list(enumerate(inputs)))}
    return CallReply(
        outputs=outputs,
        output_metas=tuple(metas[:count]),
        aliases={i: home[meta.storage] for i, meta in enumerate(metas[:count]) if meta.storage in home},
        inputs_after=after,
        state_after=state,
        launches={str(name): int(n) for name, n in answer["launches"].items()},
        ops={str(name): int(n) for name, n in answer["ops"].items()},
        threads=(int(answer["threads_before"]), int(answer["threads_after"])),
        peak_bytes=None if answer["peak_bytes"] is None else int(answer["peak_bytes"]),
        damage=str(answer["damage"]),
        replays=int(answer["replays"]),
        rng_advanced=bool(answer["rng_advanced"]),
        reseeded=bool(answer["reseeded"]),
        hidden_told=bool(answer["hidden_told"]),
        late=int(answer["late"]),
        unbuilt=int(answer["unbuilt"]),
        seconds=float(answer["seconds"]),
        wall_s=wall,
    )
