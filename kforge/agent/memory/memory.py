"""What was learned, in one SQLite file over all runs: retrieved by family, shape class and chip; safe for processes."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kforge.agent.memory.keys import Key
from kforge.agent.memory.lesson import SHOWN, Lesson, Outcome
from kforge.store.database import Database, numbered

FILE_NAME = "memory.sqlite"
_MIGRATIONS = Path(__file__).with_name("migrations")

# KernelOPT: the last eight lessons stand in a prompt; a direction is avoided after three tries under 30 % success.
SHOWN_AT_MOST = 8
TRIES, SUCCESS = 3, 0.30
SIMILAR = 3  # CUDA-L1: past hacks shown to the checker
_NAMES = tuple(field.name for field in fields(Lesson))


@dataclass(frozen=True)
class Record:
    """How a direction fared under one key."""

    family: str
    shape_class: str
    chip: str
    direction: str
    tries: int
    successes: int
    timed: int = 0  # tries whose speed was measured; without one a success says right, and no more

    @property
    def avoided(self) -> bool:
        """After three tries under 30 % success."""
        return self.tries >= TRIES and self.successes / self.tries < SUCCESS


class Memory(Database):
    """Every judged attempt is kept, as it counts for its direction; what is shown are gains, losses and failures."""

    purpose = "the memory"
    unwritten = "the run itself is in its log; move the memory away to begin a new one"
    unread = "move it away: it is no part of any run"

    def __init__(self, path: Path | str = f".kforge/{FILE_NAME}") -> None:
        super().__init__(path, numbered(_MIGRATIONS))

    def remember(self, lesson: Lesson) -> None:
        """Keep a lesson. A candidate counts once in a run and on a chip: judged again, its last outcome holds."""
        success = None if lesson.success is None else int(lesson.success)
        names = [name for name in _NAMES if name != "id"]
        values = [getattr(lesson, name) for name in names]
        values[names.index("time")] = lesson.time or time.time()
        again = ", ".join(
            f"{name} = excluded.{name}" for name in ("time", "outcome", "success", "gain", "why", "source")
        )
        self.write(
            f"INSERT INTO lessons ({', '.join(names)}, success) VALUES ({_marks(values)}, ?)"
            f" ON CONFLICT (run, candidate, chip) WHERE candidate <> '' DO UPDATE SET {again}",
            *values,
            success,
        )

    def lessons(self, family: str, shape_class: str, chip: str, limit: int = SHOWN_AT_MOST) -> list[Lesson]:
        """What to show for a task, oldest first: the latest under its key; where those are few, of its family.

        Nearest first are chosen: the same key, the same chip, any chip. Each lesson names its own key.
        """
        rows = self.read(
            f"SELECT * FROM lessons WHERE family = ? AND outcome IN ({_marks(SHOWN)})"
            " ORDER BY (chip = ?) * 2 + (chip = ? AND shape_class = ?) DESC, id DESC LIMIT ?",
            family,
            *SHOWN,
            chip,
            chip,
            shape_class,
            limit,
        )
        return sorted((_lesson(row) for row in rows), key=lambda lesson: lesson.id)

    def records(self, family: str | None = None, chip: str | None = None) -> list[Record]:
        """How each direction fared, by key."""
        where, values = _where(family=family, chip=chip)
        rows = self.read(
            "SELECT family, shape_class, chip, direction, count(*) AS tries, sum(success) AS successes,"
            " count(gain) AS timed FROM lessons"
            f" WHERE success IS NOT NULL AND direction <> ''{where}"
            " GROUP BY family, shape_class, chip, direction ORDER BY family, shape_class, chip, direction",
            *values,
        )
        return [Record(**row) for row in rows]

    def avoid(self, family: str, shape_class: str, chip: str) -> list[str]:
        """The directions that fail under exactly this key: three tries or more, under 30 % of them a success."""
        return [
            record.direction
            for record in self.records(family, chip)
            if record.shape_class == shape_class and record.avoided
        ]

    def hacks(self, source: str = "", limit: int = SIMILAR) -> list[Lesson]:
        """Past hacks of any family, those most like `source` first; the latest first where nothing is given."""
        rows = self.read("SELECT * FROM lessons WHERE outcome = ? ORDER BY id DESC", Outcome.HACKED)
        found = [_lesson(row) for row in rows]
        if source:
            wanted = shingles(source)
            found.sort(key=lambda lesson: -similarity(wanted, shingles(lesson.source)))
        return found[:limit]

    def all(self, family: str | None = None, chip: str | None = None, limit: int = 50) -> list[Lesson]:
        """The latest lessons, newest first."""
        where, values = _where(family=family, chip=chip)
        rows = self.read(f"SELECT * FROM lessons WHERE 1{where} ORDER BY id DESC LIMIT ?", *values, limit)
        return [_lesson(row) for row in rows]

    def prune(
        self,
        *,
        family: str | None = None,
        chip: str | None = None,
        before: float | None = None,
        keep: int | None = None,
        ids: Sequence[int] = (),
    ) -> int:
        """Forget; returns how many lessons. All conditions given must hold: none given forgets everything.

        before: kept earlier than this (seconds since the epoch). keep: all but the newest of them. ids: these alone.
        """
        where, values = _where(family=family, chip=chip)
        if before is not None:
            where, values = where + " AND time < ?", [*values, before]
        if ids:
            where, values = f"{where} AND id IN ({_marks(ids)})", [*values, *ids]
        if keep is not None:
            newest = f"SELECT id FROM lessons WHERE 1{where} ORDER BY id DESC LIMIT ?"
            where, values = f"{where} AND id NOT IN ({newest})", [*values, *values, keep]
        return self.write(f"DELETE FROM lessons WHERE 1{where}", *values)

    def of(self, key: Key, limit: int = SHOWN_AT_MOST) -> list[Lesson]:
        """`lessons` by a Key."""
        return self.lessons(key.family, key.shape_class, key.chip, limit)

    def avoided(self, key: Key) -> list[str]:
        """`avoid` by a Key."""
        return self.avoid(key.family, key.shape_class, key.chip)


def shingles(source: str) -> frozenset[tuple[str, ...]]:
    """The runs of three tokens of a source, comments left out: what two sources have in common."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/|#[^\n]*", " ", source, flags=re.DOTALL)
    tokens = re.findall(r"[A-Za-z_]\w*|\d+|[^\s\w]", text)
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def similarity(one: frozenset[Any], other: frozenset[Any]) -> float:
    """Jaccard: common parts over all parts, 0 to 1."""
    return len(one & other) / len(one | other) if one or other else 0.0


def _lesson(row: Any) -> Lesson:
    return Lesson(**{name: row[name] for name in _NAMES})


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _where(**columns: Any) -> tuple[str, list[Any]]:
    """Conditions for the columns that are given."""
    given = {name: value for name, value in columns.items() if value is not None}
    return "".join(f" AND {name} = ?" for name in given), list(given.values())
