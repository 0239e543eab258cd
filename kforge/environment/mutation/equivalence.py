"""Survivors that were argued equivalent, as data: equivalent.toml beside this file, a reason for each.

An entry matches by operator and by the text of the changed lines before and after the change; `context` (the line
above) and `tasks` narrow it down where one line occurs in several places.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from kforge.environment.mutation.generation import Mutant


@dataclass(frozen=True)
class Argument:
    """One entry. after, context, tasks: None where the entry does not restrict them."""

    operator: str
    before: str
    reason: str
    after: str | None = None
    context: str | None = None
    tasks: tuple[str, ...] | None = None

    def matches(self, task: str, mutant: Mutant) -> bool:
        return (
            (self.operator, self.before) == (mutant.operator, mutant.before)
            and self.after in (None, mutant.after)
            and self.context in (None, mutant.context)
            and (self.tasks is None or task in self.tasks)
        )


def read(path: Path | None = None) -> tuple[Argument, ...]:
    """All entries of a file; of the one that ships with the package by default."""
    return _parse(path.read_text()) if path else _shipped()


@cache
def _shipped() -> tuple[Argument, ...]:
    return _parse(resources.files("kforge.environment.mutation").joinpath("equivalent.toml").read_text())


def _parse(text: str) -> tuple[Argument, ...]:
    return tuple(
        Argument(**{**entry, "tasks": tuple(entry["tasks"]) if "tasks" in entry else None})
        for entry in tomllib.loads(text).get("equivalent", [])
    )


def reason(arguments: tuple[Argument, ...], task: str, mutant: Mutant) -> str:
    """Why the mutant is equivalent; the empty string where nobody argued that it is."""
    return next((a.reason for a in arguments if a.matches(task, mutant)), "")
