"""The raw log: every event and what the core's stderr said, one line each, the last few thousand."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from textual.widgets import Log

from kforge.ui.panes.rows import SETTLE_S
from kforge.ui.text import clean

MOST = 5_000  # lines
WIDEST = 2_000  # characters of a line


class LogPane(Log):
    """Events as they came, as `name=value`; lines of kind "log" are what the core wrote to its stderr."""

    HELP = """\
# Log

Every event as it came, and what the core process wrote to stderr. The whole log is in the run's folder.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(max_lines=MOST, id=id)
        self._waiting: deque[str] = deque(maxlen=MOST)
        self._in_sight = self._due = False

    def on_core_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Append one event."""
        if kind == "model_text":  # hundreds a second, and all of it again in model_call
            return
        text = str(data.get("text", "")) if kind == "log" else _short(data)
        if self._in_sight and not self._due:
            self._due = True
            self.set_timer(SETTLE_S, self.settle)
        self._waiting.append(" ".join(clean(f"{kind:<14} {text}")[:WIDEST].split("\n")).expandtabs(4))

    def settle(self) -> None:
        """Write what came since the last time: together, for a line alone costs a millisecond."""
        self._due = False
        if self._waiting and self.is_attached:
            self.write_lines(self._waiting)
            self._waiting.clear()

    def on_show(self) -> None:
        self._in_sight = True
        self.settle()

    def on_hide(self) -> None:
        self._in_sight = False

    def clear(self) -> Self:
        """Forget everything: another session is shown."""
        self._waiting.clear()
        return super().clear()


def _short(data: Mapping[str, Any]) -> str:
    return fields({k: v for k, v in data.items() if k not in ("report", "profile")})[: 2 * WIDEST]


def fields(data: Mapping[str, Any]) -> str:
    """`candidate=cdcbd148 name=static passed=true seconds=0.0362`, without what holds nothing."""
    return " ".join(f"{k}={_value(v)}" for k, v in data.items() if v not in (None, "", [], {}, ()))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return f"{{{fields(value)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    text = str(value)
    return text if text and not set(text) & set(' "=[]{},\n\t') else json.dumps(text, ensure_ascii=False)
