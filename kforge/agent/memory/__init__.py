"""Memory over runs: lessons by operator family, shape class and chip; directions to avoid; past hacks."""

from __future__ import annotations

from kforge.agent.memory.jump import reminder
from kforge.agent.memory.keys import Key, key_of
from kforge.agent.memory.lesson import Lesson, Outcome, lesson_of
from kforge.agent.memory.memory import FILE_NAME, Memory, Record

__all__ = ["FILE_NAME", "Key", "Lesson", "Memory", "Outcome", "Record", "key_of", "lesson_of", "reminder"]
