"""Events that are one sentence in the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kforge.agent.directions import tried
from kforge.ui.panes.entries import Entry, kept, milliseconds
from kforge.ui.panes.glyphs import MUTED


def _task_words(data: Mapping[str, Any]) -> Entry:
    words = f"{', '.join(data.get('inputs') or ())} to {', '.join(data.get('outputs') or ())}"
    return Entry("task", words, "", kept("\n".join(data.get("notes") or ())))


def _captured(data: Mapping[str, Any]) -> Entry:
    moved = (data.get("read_bytes") or 0) + (data.get("write_bytes") or 0)
    return Entry("task", f"captured: {data.get('operators', 0)} operators, {moved / 1e6:.3g} MB moved at least")


def _floor(data: Mapping[str, Any]) -> Entry:
    words = f"floor {milliseconds(data.get('floor_ms') or 0.0)}, {data.get('bound', '')} bound"
    words += f" ({data['source']})" if data.get("source") else ""
    return Entry("task", words + (": no room, keep PyTorch" if data.get("no_room") else ""))


def _finished(data: Mapping[str, Any]) -> Entry:
    words = ", ".join(str(data[k]) for k in ("status", "verdict") if data.get(k))
    return Entry("run", f"run finished: {words} in {data.get('seconds') or 0:.1f} s")


def _message(data: Mapping[str, Any]) -> Entry:
    text = str(data["text"])
    style = "$text-warning" if data.get("level") == "warning" else MUTED
    return Entry("message", text, style, kept(text) if "\n" in text or len(text) > 60 else "")


def _exported(data: Mapping[str, Any]) -> Entry:
    stamp = data.get("stamp") or "no stamp"
    return Entry("files", f"exported as {data.get('format')} to {data.get('folder')} ({stamp})", "$text-success")


def lesson(data: Mapping[str, Any]) -> tuple[str, str, str]:
    """(outcome, what was tried, of which tasks) of a lesson, in words."""
    gain = data.get("gain")
    outcome = str(data.get("outcome") or "") + (f" {gain:.2f}x" if isinstance(gain, (int, float)) else "")
    words = tried(str(data.get("direction") or ""), str(data.get("text") or ""))
    return outcome, words, ", ".join(str(data[k]) for k in ("family", "shape_class", "chip") if data.get(k))


def _lesson(data: Mapping[str, Any]) -> Entry:
    outcome, words, about = lesson(data)
    return Entry("lesson", f"learnt: {outcome}" + (f": {words}" if words else f" for {about}"), "$text-secondary")


def _places(words: str, data: Mapping[str, Any]) -> Entry:
    names = [str(name).rsplit("/", 1)[-1] for name in data.get("files") or ()]
    folder = f" in {data['folder']}" if data.get("folder") else ""
    return Entry(
        "files", f"{words}: {', '.join(names)}{folder}", "$text-success", "\n".join(map(str, data.get("files") or ()))
    )


SENTENCES: dict[str, Callable[[Mapping[str, Any]], Entry | None]] = {
    "run_started": lambda d: Entry("run", f"run of {str(d['task']).rsplit('/', 1)[-1]}", "bold"),
    "task_inspected": _task_words,
    "captured": _captured,
    "baseline_timed": lambda d: Entry("task", f"baseline {d.get('name')}: {milliseconds(d.get('ms') or 0.0)}"),
    "floor": _floor,
    "written": lambda d: _places("written", d),
    "accepted": lambda d: _places("accepted", d),
    "undone": lambda d: _places("undone", d),
    "exported": _exported,
    "hunk": lambda d: Entry("hunk", f"change {d.get('hunk')} {d.get('action')}: {d.get('reason') or ''}"),
    "compacted": lambda d: Entry("model", f"conversation shortened from {d.get('before')} to {d.get('after')} tokens"),
    "lesson": _lesson,
    "message": _message,
    "stopped": lambda d: Entry("run", f"stopped after {d.get('seconds') or 0:.1f} s", "$text-warning"),
    "run_finished": _finished,
}  # fmt: skip
