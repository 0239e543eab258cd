"""Live progress on stderr from the events of a run: stage, candidate, best so far.

On a terminal one line that is rewritten, plain lines otherwise. It reads events and must not decide anything.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping
from typing import Any, TextIO

from kforge.cli.streams import narration, say
from kforge.cli.text import has_cursor, plain, style, use_colour, width
from kforge.store.schema import TRANSIENT

Data = Mapping[str, Any]
QUIET = TRANSIENT | {"model_started"}  # told by what follows


def milliseconds(value: float) -> str:
    """A time in ms with three significant digits, in the unit that reads well: 850 ns, 12.3 us, 4.76 ms, 1.20 s."""
    for unit, factor in (("s", 1e-3), ("ms", 1.0), ("us", 1e3)):
        if value * factor >= 1:
            return f"{_three(value * factor)} {unit}"
    return f"{_three(value * 1e6)} ns"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def size(count: float) -> str:
    """Bytes in decimal units, as bandwidths are quoted: 16.8 MB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{_three(count / factor)} {unit}"
    return f"{count:.0f} B"


def _task_inspected(data: Data) -> str:
    shapes = ", ".join(map(str, data.get("inputs", ()))) or "inputs"
    outputs = ", ".join(map(str, data.get("outputs", ())))
    notes = "; ".join(
        ["degenerate: the output is constant"] * bool(data.get("degenerate")) + list(data.get("notes", ()))
    )
    return f"reference runs: {shapes}" + (f" -> {outputs}" if outputs else "") + (f" [{notes}]" if notes else "")


def _captured(data: Data) -> str:
    parts = [f"{data['operators']} operators"] if "operators" in data else []
    if "read_bytes" in data:
        parts.append(f"reads {size(data['read_bytes'])}")
    if "write_bytes" in data:
        parts.append(f"writes {size(data['write_bytes'])}")
    return "graph captured: " + ", ".join(parts) if parts else "graph captured"


def _floor(data: Data) -> str:
    ms = f" {milliseconds(data['floor_ms'])}" if data.get("floor_ms") is not None else ""
    bound = f", {data['bound']} bound" if data.get("bound") else ""
    source = f" ({data['source']})" if data.get("source") else ""
    return f"floor{ms}{bound}{source}" + (": no room" if data.get("no_room") else "")


def gist(detail: str) -> str:
    """The line that says it: of a compiler's errors the first; of a traceback the last, behind what introduces it."""
    first, *more = detail.strip().splitlines() or [""]
    intro, frame, _ = first.partition('File "')
    return intro + more[-1].strip() if frame and more else first


def _gate(data: Data) -> str:
    outcome = {True: "passed", False: "failed", None: "not run"}[data["passed"]]
    detail = f": {gist(str(data['detail']))}" if data.get("detail") and not data["passed"] else ""
    return f"gate {data['name']} {outcome}{detail}"


def _evaluated(data: Data) -> str:
    text = f"{str(data['candidate'])[:8]} {data['status']}"
    if data.get("verdict") and data["verdict"] != "untimed":
        text += f", {data['verdict']}"
    if data.get("speedup") is not None:
        text += f", x{data['speedup']:.2f}"
    if data.get("ms") is not None:
        text += f", {milliseconds(data['ms'])}"
    return text


def _best(data: Data) -> str:
    text = f"best {str(data['candidate'])[:8]}"
    if data.get("speedup") is not None:
        text += f" x{data['speedup']:.2f}"
    if data.get("ms") is not None:
        text += f" {milliseconds(data['ms'])}"
    return text


def _proposed(data: Data) -> str:
    idea = f": {data['idea']}" if data.get("idea") else ""
    return f"candidate {str(data['candidate'])[:8]}{idea}"


def _tuned(data: Data) -> str:
    return f"tuned {str(data.get('candidate', ''))[:8]}".rstrip()


def _model_call(data: Data) -> str:
    """scripted (executor) answered: 1200 tokens in, 340 out, 0.0123 USD."""
    role = f" ({data['role']})" if data.get("role") else ""
    return f"{data.get('model') or 'the model'}{role} answered: {used(data)}"


def used(data: Data) -> str:
    """Tokens and money in words, of one call or of a run."""
    cached = f" ({data['tokens_cached']} cached)" if data.get("tokens_cached") else ""
    tokens = f"{data.get('tokens_in') or 0} tokens in{cached}, {data.get('tokens_out') or 0} out"
    usd = data.get("usd")
    return tokens + (", price unknown" if usd is None else f", {usd:.4g} USD" if usd else "")


def _tool_call(data: Data) -> str:
    outcome = "failed" if data.get("error") else "done"
    return f"tool {data['tool']} {outcome}: {shorten(gist(str(data.get('result') or '')))}"


def shorten(text: str, most: int = 100) -> str:
    """The beginning of a text in one line."""
    words = " ".join(text.split())
    return words if len(words) <= most else words[: most - 3].rstrip() + "..."


def _constraint(data: Data) -> str:
    verb = "stands" if data["action"] == "added" else "is released"
    return f"rule {data['name']} {verb}" + (f" ({data['origin']})" if data.get("origin") else "")


def _resumed(data: Data) -> str:
    return f"the run goes on after {float(data.get('seconds') or 0.0):.0f} s of work"


_LINES = {
    "run_started": lambda data: f"task {data['task']}",
    "task_loaded": lambda data: f"task loaded ({data['form']})" if data.get("form") else "task loaded",
    "task_inspected": _task_inspected,
    "captured": _captured,
    "baseline_timed": lambda data: f"baseline {data.get('name', '')} {milliseconds(data['ms'])}",
    "floor": _floor,
    "proposed": _proposed,
    "building": lambda data: f"building {str(data.get('candidate', ''))[:8]}".rstrip(),
    "case": lambda data: f"case {data['label']}" + ("" if data["passed"] else " failed"),
    "gate": _gate,
    "evaluated": _evaluated,
    "tuned": _tuned,
    "best": _best,
    "message": lambda data: str(data["text"]),
    "model_started": lambda data: f"asking {data.get('model') or 'the model'}",
    "model_call": _model_call,
    "tool_call": _tool_call,
    "steer": lambda data: f"steer {data['id']} {data['state']}: {shorten(str(data['text']))}",
    "constraint": _constraint,
    "compacted": lambda data: f"conversation shortened: {data.get('before')} to {data.get('after')} tokens",
    "hunk": lambda data: f"hunk {data.get('hunk')} {data.get('action')}: {shorten(str(data.get('reason') or ''))}",
    "accepted": lambda data: f"accepted {str(data['candidate'])[:8]}",
    "undone": lambda data: "accept taken back",
    "exported": lambda data: f"exported {str(data['candidate'])[:8]} as {data.get('format')}",
    "profiled": lambda data: f"profiled {str(data['candidate'])[:8]}",
    "resumed": _resumed,
    "stopped": lambda data: "stopped: the run is saved",
}


def describe(kind: str, data: Data) -> str | None:
    """One event as a short line for a person; None for events that the command says by itself at its end."""
    line = _LINES.get(kind)
    return None if line is None else " ".join(plain(line(data)).split())


class Progress:
    """Receives the events of a run (`progress(kind, data)`) and shows them on `stream` (default: stderr)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or narration()
        self._say = say if stream is None else stream.write
        self._started = time.monotonic()
        self._live = has_cursor(self._stream)
        self._colour = use_colour(self._stream)
        self._best = ""
        self._candidates = 0
        self._shown = False

    def __call__(self, kind: str, data: Data) -> None:
        text = describe(kind, data)
        if kind == "proposed":
            self._candidates += 1
        if text is None:
            return
        seconds = f"{time.monotonic() - self._started:6.1f}s"
        if not self._live:
            if kind not in QUIET and not (kind == "gate" and data["passed"] is not False):
                lines = textwrap.wrap(text, width(self._stream) - len(seconds) - 2, break_on_hyphens=False)
                self._say(f"{seconds}  " + ("\n" + " " * (len(seconds) + 2)).join(lines) + "\n")
            return
        if kind == "best":
            self._best = text
        if kind == "message":
            self._say(f"{self._clear()}{text}\n")
            return
        parts = [seconds.strip(), text]
        if self._candidates and kind != "proposed":
            parts.insert(1, f"candidate {self._candidates}")
        if self._best and kind != "best":
            parts.append(self._best)
        line = " | ".join(parts)[: max(20, width(self._stream) - 1)]
        self._say(self._clear() + style(line, "dim", self._colour))
        self._shown = True

    def close(self) -> None:
        """Removes the live line, so that what follows starts on an empty one."""
        if self._shown:
            self._say(self._clear())
            self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clear(self) -> str:
        return "\r\x1b[K" if self._shown else ""
