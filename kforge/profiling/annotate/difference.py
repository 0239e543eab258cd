"""Two versions of a file, line by line, with one metric before and after."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kforge.profiling.annotate.lines import METRICS, Annotated

CONTEXT = 3


class Tag(StrEnum):
    """What became of a line; HUNK begins a group of lines."""

    HUNK = "@"
    SAME = " "
    OLD = "-"
    NEW = "+"


@dataclass(frozen=True)
class DiffLine:
    """One line of an annotated diff. old, new: its numbers, None where it is not in that version.

    before, after: the metric's values there, None where there are none.
    """

    tag: Tag
    text: str
    old: int | None = None
    new: int | None = None
    before: float | None = None
    after: float | None = None


def common_metric(before: Annotated | None, after: Annotated | None) -> str | None:
    """The most telling metric that both sides have, or that the only side has; None where there is none."""
    sides = [side.metrics for side in (before, after) if side is not None]
    return next((name for name in METRICS if sides and all(name in metrics for metrics in sides)), None)


def aligned(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Numbers (from 1) of the lines that both versions have: new by old."""
    pairs: dict[int, int] = {}
    for tag, i1, i2, j1, _ in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs.update({i + 1: j1 + i - i1 + 1 for i in range(i1, i2)})
    return pairs


def difference(
    old: str, new: str, before: Annotated | None, after: Annotated | None, metric: str | None, context: int = CONTEXT
) -> list[DiffLine]:
    """The unified diff with a metric's figures; empty where the texts are equal and no figure changed.

    A line that both versions have and whose figure changed is shown too: its text is the same, its cost is not.
    """
    a, b = old.splitlines(), new.splitlines()
    rows = list(_rows(a, b, before, after, metric))
    wanted = [i for i, row in enumerate(rows) if row.tag is not Tag.SAME or _changed(row)]
    if not wanted:
        return []
    shown = sorted({j for i in wanted for j in range(max(0, i - context), min(len(rows), i + context + 1))})
    found: list[DiffLine] = []
    for k, i in enumerate(shown):
        if k == 0 or shown[k - 1] != i - 1:
            row = rows[i]
            found.append(DiffLine(Tag.HUNK, f"@@ -{row.old or 0} +{row.new or 0} @@"))
        found.append(rows[i])
    return found


def _rows(
    a: Sequence[str], b: Sequence[str], before: Annotated | None, after: Annotated | None, metric: str | None
) -> Iterator[DiffLine]:
    def old_value(i: int) -> float | None:
        return before.value(i + 1, metric) if before is not None and metric else None

    def new_value(j: int) -> float | None:
        return after.value(j + 1, metric) if after is not None and metric else None

    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                yield DiffLine(Tag.SAME, a[i], i + 1, j + 1, old_value(i), new_value(j))
            continue
        for i in range(i1, i2):
            yield DiffLine(Tag.OLD, a[i], i + 1, None, old_value(i), None)
        for j in range(j1, j2):
            yield DiffLine(Tag.NEW, b[j], None, j + 1, None, new_value(j))


def _changed(row: DiffLine) -> bool:
    """By more than a twentieth: samples are never quite the same twice."""
    if row.before is None or row.after is None:
        return False
    return abs(row.after - row.before) > 0.05 * max(abs(row.before), abs(row.after))


def rendered(rows: Sequence[DiffLine], metric: str | None) -> list[str]:
    """Lines of text: the figures before and after, then the line as in a unified diff."""
    if metric is None:
        return [row.text if row.tag is Tag.HUNK else f"{row.tag.value}{row.text}" for row in rows]
    show = METRICS[metric].show

    def cell(value: float | None) -> str:
        return "" if value is None else show(value)

    lines = [f"{'before':>8} {'after':>8}   {METRICS[metric].title} ({METRICS[metric].unit})"]
    for row in rows:
        if row.tag is Tag.HUNK:
            lines.append(f"{'':17}  {row.text}")
        else:
            lines.append(f"{cell(row.before):>8} {cell(row.after):>8}  {row.tag.value}{row.text}".rstrip())
    return lines
