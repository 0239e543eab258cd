"""Sees that a conversation goes in circles: equal calls on equal files, answers that do nothing, refusals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

TOLD, ENDED = 3, 5  # the third equal call is told so, the fifth ends the conversation; ours
REMINDERS = 2  # answers in a row without an action that are answered with a reminder
WRITES = frozenset({"write_file", "edit_file"})


@dataclass
class Guard:
    """Counts over one conversation. The same arguments after a change of the files are another call."""

    seen: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    idle: int = 0  # answers in a row that did nothing

    def call(self, tool: str, arguments: str | dict[str, Any]) -> int:
        """How many times this call was made now, this one included."""
        key = f"{tool} {_canonical(arguments)}" + ("" if tool in WRITES else f" after {self.changes}")
        self.seen[key] += 1
        return self.seen[key]

    def done(self, tool: str, is_error: bool) -> None:
        """A call was carried out."""
        self.idle = 0
        if tool in WRITES and not is_error:
            self.changes += 1

    def nothing(self) -> int:
        """An answer did nothing; how many in a row did."""
        self.idle += 1
        return self.idle


def _canonical(arguments: str | dict[str, Any]) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return str(arguments)
    return json.dumps(arguments, sort_keys=True)
