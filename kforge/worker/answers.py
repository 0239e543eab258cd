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
_LONGEST_NAME = 120
_MOST = (1 << 63) - 1


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


def count(value: Any, most: int = _MOST) -> int:
    """A whole number that something was counted or measured to be: 0 to `most`. A lying child may name any."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.40} is no number from 0 to {most}")
    return value


def seconds(value: Any) -> float:
    """A time, in whatever unit: finite and not negative."""
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)


def load_reply(answer: Mapping[str, Any], took_s: float) -> LoadReply:
    """Which keys of the state did not fit."""
    names = {k: tuple(map(str, answer[k])) for k in ("missing", "unexpected", "mismatched", "redirected")}
    return LoadReply(**names, seconds=took_s)


def armed(answer: Mapping[str, Any]) -> Armed:
    """What can be timed, and what each wrapper lacks."""
    problems = {str(name): str(text) for name, text in answer["problems"].items()}
    times = {name: seconds(answer[name]) for name in ("seconds", "once_s", "first_s", "host_us")}
    return Armed(**times, problems=problems, derived=bool(answer.get("derived")))


def recorded(answer: Mapping[str, Any]) -> Recorded:
    """Which launches are kept."""
    return Recorded(count(answer["launches"]), seconds(answer["seconds"]), tuple(map(str, answer["left_out"])))


def timings(answer: Mapping[str, Any], iterations: int) -> tuple[float, ...]:
    """Milliseconds of each call."""
    ms = answer["ms"]
    if not isinstance(ms, list) or len(ms) != iterations or not all(type(t) is float for t in ms):
        raise ValueError("timings")
    return tuple(map(seconds, ms))


def rows(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of objects."""
    found = answer[key]
    if not isinstance(found, list) or len(found) > _MOST_ROWS or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"a malformed list of {key}")
    return found


def names(answer: Mapping[str, Any]) -> list[str]:
    """A list of names, each cut to a line's length."""
    found = answer["names"]
    if not isinstance(found, list) or len(found) > _MOST_ROWS or not all(type(name) is str for name in found):
        raise ValueError("a malformed list of names")
    return [name[:_LONGEST_NAME] for name in found]


def inspected(answer: Mapping[str, Any]) -> list[Inspected]:
    """What each tool of the memory gate says."""
    return [
        Inspected(
            tool=str(row["mode"]),
            seconds=seconds(row["seconds"]),
            findings=tuple({str(k): v for k, v in finding.items()} for finding in rows(row, "findings")),
            skipped=str(row["skipped"]),
        )
        for row in rows(answer, "inspected")
    ]


def kernel_times(answer: Mapping[str, Any], wall_s: float) -> list[KernelTime]:
    """Device time by kernel. wall_s: by the judge's clock, from asking to the answer: no launch takes longer."""
    found = [KernelTime(str(row["name"]), seconds(row["us"]), count(row["count"])) for row in rows(answer, "kernels")]
    if not all(k.us <= wall_s * 1e6 * max(1, k.count) for k in found):
        raise ValueError("device times beyond the time of the call")
    return found


def events(answer: Mapping[str, Any], wall_s: float) -> list[DeviceEvent]:
    """What the device did, in order."""
    found = [DeviceEvent(str(row["name"]), float(row["start"]), seconds(row["us"])) for row in rows(answer, "events")]
    if not all(math.isfinite(e.start) and e.us <= wall_s * 1e6 for e in found):
        raise ValueError("device events beyond the time of the call")
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
    own = len(used)
    state = decode(answer["state"], take)
    named = isinstance(state, dict) and all(hasattr(value, "dtype") for value in state.values())
    if used != list(range(len(tensors))) or not named:
        raise ChildFailed("protocol", "leaves of the answer that do not add up")
    home = {storage: number for number, storage in reversed(list(enumerate(inputs)))}
    return CallReply(
        outputs=outputs,
        output_metas=tuple(metas[:own]),
        aliases={i: home[meta.storage] for i, meta in enumerate(metas[:own]) if meta.storage in home},
        inputs_after=after,
        state_after=state,
        launches={str(name): count(n) for name, n in answer["launches"].items()},
        ops={str(name): count(n) for name, n in answer["ops"].items()},
        threads=(count(answer["threads_before"]), count(answer["threads_after"])),
        peak_bytes=None if answer["peak_bytes"] is None else count(answer["peak_bytes"]),
        damage=str(answer["damage"]),
        replays=count(answer["replays"]),
        rng_advanced=bool(answer["rng_advanced"]),
        reseeded=bool(answer["reseeded"]),
        hidden_told=bool(answer["hidden_told"]),
        late=count(answer["late"]),
        unbuilt=count(answer["unbuilt"]),
        seconds=seconds(answer["seconds"]),
        wall_s=wall,
    )
