"""What a run tells the memory of its attempts, and what the memory has to say about one. No judging here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.agent.attempts import Attempt
    from kforge.agent.memory import Key, Memory
    from kforge.agent.search.tree import Tree


def learn(memory: Memory, key: Key, tree: Tree, attempt: Attempt, run: str) -> dict[str, Any]:
    """Keep an attempt's lesson; its data as an event. A candidate counts once in a run, with its last outcome."""
    from kforge.agent.memory import lesson_of

    lesson = lesson_of(key, tree, attempt.node, attempt.report, attempt.candidate, run=run)
    memory.remember(lesson)
    names = ("family", "shape_class", "chip", "direction", "gain", "text")
    return {"outcome": str(lesson.outcome), **{name: getattr(lesson, name) for name in names}}


def remind(memory: Memory, attempt: Attempt, before: Attempt | None, warn: Callable[[str], None]) -> None:
    """Warn of past hacks like a candidate that is suddenly much faster."""
    from kforge.agent.memory import reminder

    ms = before.ms if before is not None and math.isfinite(before.ms) else None
    words = reminder(memory, attempt.candidate, attempt.report, ms)
    if words:
        warn(words)
