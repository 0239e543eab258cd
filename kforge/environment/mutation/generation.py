"""`mutants(candidate)`: every planted mistake as a candidate of its own, with the line and what was changed there."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kforge.environment.mutation.operators import Operator, load
from kforge.environment.mutation.source import Change, Cuda, Module, apply
from kforge.kernel.candidate import Candidate

SOURCES = (".cu", ".cuh", ".h")


@dataclass(frozen=True)
class Mutant:
    """A candidate with one mistake. before, after: the changed source lines, stripped. context: the line above."""

    operator: str
    file: str
    line: int
    before: str
    after: str
    context: str
    note: str
    candidate: Candidate

    @property
    def key(self) -> str:
        """16 hex digits that name this mutant in a log: they follow from its text alone."""
        return self.candidate.digest

    @property
    def diff(self) -> str:
        """The change as a unified diff would show it."""
        old = "".join(f"-{line}\n" for line in self.before.splitlines())
        return f"{self.file}:{self.line} {self.note}\n{old}" + "".join(f"+{line}\n" for line in self.after.splitlines())


def mutants(
    candidate: Candidate,
    operators: Collection[str] | None = None,
    cap: int | None = None,
    launched: Collection[str] | None = None,
) -> Iterator[Mutant]:
    """Mutants of all operators (or of these), operator by operator.

    cap: at most so many of each operator, a sample that follows from the texts alone. launched: names of the kernels
    whose code is mutated; None for all. Two edits that give one text count once. KeyError for an unknown operator.
    """
    registry = load()
    seen = {candidate.digest}
    for operator in (registry[name] for name in operators) if operators is not None else registry.values():
        made = []
        for mutant in _all(candidate, operator, launched):
            if mutant.key not in seen:
                seen.add(mutant.key)
                made.append(mutant)
        if cap is not None and len(made) > cap:
            chosen = set(sorted((m.key for m in made), key=_order)[:cap])
            made = [m for m in made if m.key in chosen]
        yield from made


def _all(candidate: Candidate, operator: Operator, launched: Collection[str] | None) -> Iterator[Mutant]:
    for file, source in sorted(candidate.files.items()):
        if operator.language == "cuda" and file.endswith(SOURCES):
            changes = operator.run(Cuda(source, launched))
        elif operator.language == "module" and file == candidate.module:
            changes = operator.run(Module(source, launched))
        else:
            continue
        for one in changes:
            yield _mutant(candidate, operator, file, source, one)


def _mutant(candidate: Candidate, operator: Operator, file: str, source: str, change: Change) -> Mutant:
    main = change.edits[0]
    data = source.encode()
    start = data.rfind(b"\n", 0, main.start) + 1
    end = data.find(b"\n", main.end)
    end = len(data) if end < 0 else end
    after = data[start : main.start] + main.text.encode() + data[main.end : end]
    above = data[: max(0, start - 1)].rsplit(b"\n", 1)[-1]
    text = apply(source, change.edits)
    return Mutant(
        operator=operator.name,
        file=file,
        line=data.count(b"\n", 0, main.start) + 1,
        before=_strip(data[start:end]),
        after=_strip(after),
        context=above.decode().strip(),
        note=change.note,
        candidate=candidate.with_file(file, text),
    )


def _strip(lines: bytes) -> str:
    return "\n".join(line.strip() for line in lines.decode().splitlines())


def _order(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
