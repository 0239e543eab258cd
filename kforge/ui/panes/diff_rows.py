"""The rows of a diff: unified, side by side, or the reference beside the kernel lines that compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from textual.content import Content

from kforge.profiling.annotate.lines import METRICS
from kforge.ui.panes.diff_model import ACCEPTED, PENDING, REJECTED, Choice, DiffModel, File, Note
from kforge.ui.panes.glyphs import MUTED, Glyphs
from kforge.ui.panes.rows import fitted, wrapped
from kforge.ui.text import one_line, plain

CONTEXT = 3
NARROW = 70  # cells, below which blocks are moved to the left
CHANGED = 0.05  # share by which a figure changes before its line is shown though its text is the same
_SEVERITY = {"critical": "$text-error", "major": "$text-warning", "stop": "$text-success"}


@dataclass(frozen=True)
class Row:
    """One line of the pane. hunk: its index, None outside. heat: the figure that "hot line" walks along."""

    content: Content
    look: str = ""  # component class: diff--add, diff--remove, diff--file, diff--hunk
    hunk: int | None = None
    heat: float | None = None
    gap: bool = False  # lines are left out here
    code: Content | None = None  # what follows `content`: a source line, which may be longer than the pane


@dataclass(frozen=True)
class Layout:
    """How rows are made."""

    width: int
    signs: Glyphs
    metric: str = ""
    sides: bool = False
    figures: int = 0  # cells of the widest figure


Parts = dict[Any, list[Row]]  # rows by what they show


def rows(model: DiffModel, layout: Layout, parts: Parts | None = None) -> list[Row]:
    """All of them, from top to bottom. parts: those made before for this model and layout; a decision changes few."""
    parts = {} if parts is None else parts
    layout = replace(layout, figures=_widest_figure(model, layout))
    if not model.related:
        return list(_correspondence(model, layout))
    found: list[Row] = []
    for file in model.files:
        found.append(Row(plain(file.name, "bold"), "diff--file"))
        mine = [(i, c) for i, c in enumerate(model.choices) if c.hunk.file == file.name]
        found += _file(file, mine, len(model.choices), layout, parts)
    return _moved_left(found) if layout.width < NARROW else found


def _moved_left(rows: Sequence[Row]) -> list[Row]:
    """Each block of neighbouring source lines without the spaces that all of its lines begin with."""
    found: list[Row] = []
    block: list[Row] = []

    def flush() -> None:
        texts = [row.code.plain for row in block if row.code is not None and row.code.plain.strip()]
        inset = min((len(text) - len(text.lstrip(" ")) for text in texts), default=0)
        found.extend(replace(row, code=row.code[inset:]) if row.code is not None else row for row in block)
        block.clear()

    for row in rows:
        if row.look == "diff--file" or row.gap:
            flush()
            found.append(row)
        else:
            block.append(row)
    flush()
    return found


def _widest_figure(model: DiffModel, layout: Layout) -> int:
    if not layout.metric:
        return 0
    widest = 0
    for file in model.files:
        sides = file.figures.get(layout.metric, {})
        for values in sides.values():
            widest = max([widest, *(len(METRICS[layout.metric].show(value)) for value in values.values())])
    both = sum(1 for file in model.files for values in file.figures.get(layout.metric, {}).values() if values) > 1
    return 2 * widest + 1 if both else widest


def _file(file: File, choices: Sequence[tuple[int, Choice]], total: int, layout: Layout, parts: Parts) -> Iterator[Row]:
    def made(key: tuple[Any, ...], make: Callable[[], Iterator[Row]]) -> list[Row]:
        known = parts.get((file.name, *key))
        if known is None:
            known = parts[file.name, *key] = list(make())
        return known

    old, new = 1, 1  # the next lines
    for index, choice in choices:
        hunk = choice.hunk
        count, first = hunk.old_start - old, old == 1
        yield from made((old, new, count), partial(_unchanged, file, old, new, count, layout, first=first))
        yield _header(index, choice, file, total, layout)
        lines = _beside if layout.sides else _unified
        yield from made((index, hunk.id), partial(lines, file, index, choice, layout))
        old, new = hunk.old_start + len(hunk.old), hunk.new_start + len(hunk.new)
    rest = max(_length(file.old_text) - old + 1, 0)
    yield from made((old, new, rest), partial(_unchanged, file, old, new, rest, layout, first=not choices, last=True))


def _length(text: str | None) -> int:
    return 0 if not text else text.count("\n") + (not text.endswith("\n"))


def _unchanged(
    file: File, old: int, new: int, count: int, layout: Layout, first: bool = False, last: bool = False
) -> Iterator[Row]:
    """Lines around hunks, and those whose figure changed; what is left out is counted."""
    hidden = 0
    for k in range(count):
        near = (k < CONTEXT and not first) or (k >= count - CONTEXT and not last)
        before = file.value(layout.metric, "old", old + k)
        after = file.value(layout.metric, "new", new + k)
        if not near and not _differs(before, after):
            hidden += 1
            continue
        if hidden:
            yield _gap(hidden, layout)
            hidden = 0
        yield from _line(file, " ", old + k, new + k, None, layout)
    if hidden:
        yield _gap(hidden, layout)


def _differs(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    return abs(after - before) > CHANGED * max(abs(before), abs(after))


def _gap(count: int, layout: Layout) -> Row:
    words = f"{count} line{'' if count == 1 else 's'} unchanged"
    return Row(Content.styled(f"  {layout.signs.rule * 3} {words}", MUTED), gap=True)


def _header(index: int, choice: Choice, file: File, total: int, layout: Layout) -> Row:
    hunk, signs = choice.hunk, layout.signs
    mark, style = {
        PENDING: (" ", ""),
        ACCEPTED: (signs.passed, "$text-success"),
        REJECTED: (signs.failed, "$text-error"),
    }[choice.state]
    words = f"{choice.state}" + (f": {one_line(choice.reason)}" if choice.reason else "")
    parts: list[Content | tuple[str, str]] = [
        (f"{mark} ", style),
        (f"{index + 1}/{total} ", "bold"),
        (f"{hunk.header if layout.width >= NARROW else hunk.header.strip('@ ')} ", MUTED),
        plain(words if choice.state != PENDING else "", style),
    ]
    hottest = [
        max(
            (v for n in range(start, start + count) if (v := file.value(layout.metric, side, n)) is not None),
            default=None,
        )
        for side, start, count in (("old", hunk.old_start, len(hunk.old)), ("new", hunk.new_start, len(hunk.new)))
    ]
    before, after = hottest
    if before is not None or after is not None:
        show = METRICS[layout.metric].show
        old = "" if before is None else show(before) if after is not None else f"was {show(before)}"
        new = "" if after is None else show(after)
        change = f" {signs.arrow} ".join(filter(None, [old, new]))
        parts.append((f"  {layout.metric} {change}", "$text-warning"))
    return Row(fitted(Content.assemble(*parts), layout.width, signs.ellipsis), "diff--hunk", index)


def _unified(file: File, index: int, choice: Choice, layout: Layout) -> Iterator[Row]:
    hunk = choice.hunk
    for tag, old, new in _steps(hunk.old, hunk.new):
        a = None if old is None else hunk.old_start + old
        b = None if new is None else hunk.new_start + new
        yield from _line(file, tag, a, b, index, layout)


def _steps(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int | None, int | None]]:
    """(tag, place in old, place in new) of a hunk's lines, unchanged ones inside it too."""
    from kforge.agent.hunks import opcodes

    i = j = 0
    for i1, i2, j1, j2 in [*opcodes(old, new), (len(old), len(old), len(new), len(new))]:
        yield from ((" ", a, b) for a, b in zip(range(i, i1), range(j, j1), strict=True))
        yield from (("-", a, None) for a in range(i1, i2))
        yield from (("+", None, b) for b in range(j1, j2))
        i, j = i2, j2


_LOOK = {"-": "diff--remove", "+": "diff--add", " ": ""}


def _line(file: File, tag: str, old: int | None, new: int | None, hunk: int | None, layout: Layout) -> Iterator[Row]:
    """One line of a unified diff, or one pair of equal lines side by side, and what was found at it."""
    before = file.value(layout.metric, "old", old)
    after = file.value(layout.metric, "new", new)
    heat = after if after is not None else before
    if layout.sides and tag == " ":
        yield _pair(file, (old, new), (" ", " "), hunk, layout)
    else:
        text = file.old[old - 1] if tag == "-" and old is not None else file.new[new - 1] if new else Content("")
        number = old if tag == "-" else new
        lead = Content.assemble((f"{number:>4} ", MUTED), _figure(before, after, layout), f"{tag} ")
        yield Row(lead, _LOOK[tag], hunk, heat, code=text)
    for side, line in (("old", old if tag == "-" else None), ("new", new)):
        for note in file.notes_at(side, line):
            yield from _note(note, hunk, layout)


def _figure(before: float | None, after: float | None, layout: Layout) -> tuple[str, str]:
    """before -> after where both are known and differ, else the one there is."""
    if not layout.metric:
        return "", ""
    show = METRICS[layout.metric].show
    if before is not None and after is not None and _differs(before, after):
        words = f"{show(before)}{layout.signs.arrow}{show(after)}"
        return f"{words:>{layout.figures}} ", "bold $text-success" if after < before else "bold $text-error"
    value = after if after is not None else before
    return f"{'' if value is None else show(value):>{layout.figures}} ", "$text-warning"


def _note(note: Note, hunk: int | None, layout: Layout) -> Iterator[Row]:
    style = _SEVERITY.get(note.severity, "$text-secondary")
    words = f"{note.severity}: {note.text}" if note.severity else note.text
    for k, row in enumerate(wrapped(plain(one_line(words), style), layout.width - 9)):
        lead = f"      {layout.signs.corner if k == 0 else ' '} "
        yield Row(Content.assemble((lead, style), row), "", hunk)


def _beside(file: File, index: int, choice: Choice, layout: Layout) -> Iterator[Row]:
    hunk = choice.hunk
    removed: list[int] = []
    added: list[int] = []

    def block() -> Iterator[Row]:
        for old, new in zip_longest(removed, added):
            yield _pair(file, (old, new), ("-" if old else " ", "+" if new else " "), index, layout)
            for side, line in (("old", old), ("new", new)):
                for note in file.notes_at(side, line):
                    yield from _note(note, index, layout)
        removed.clear()
        added.clear()

    for tag, i, j in _steps(hunk.old, hunk.new):
        if tag == "-" and i is not None:
            removed.append(hunk.old_start + i)
        elif tag == "+" and j is not None:
            added.append(hunk.new_start + j)
        elif i is not None and j is not None:
            yield from block()
            yield from _line(file, " ", hunk.old_start + i, hunk.new_start + j, index, layout)
    yield from block()


def _pair(
    file: File, numbers: tuple[int | None, int | None], tags: tuple[str, str], hunk: int | None, layout: Layout
) -> Row:
    room = max(12, (layout.width - 3) // 2)
    cells: list[Content] = []
    heat = None
    for side, text, number, tag in zip(("old", "new"), (file.old, file.new), numbers, tags, strict=True):
        if number is None:
            cells.append(Content(" " * room))
            continue
        value = file.value(layout.metric, side, number)
        heat = value if value is not None else heat
        shown = "" if value is None else METRICS[layout.metric].show(value)
        figure = f"{shown:>6} " if layout.metric and room >= 36 else ""
        cell = fitted(
            Content.assemble((f"{number:>4} ", MUTED), (figure, "$text-warning"), f"{tag} ", text[number - 1]),
            room, layout.signs.ellipsis,
        )  # fmt: skip
        cell = Content.assemble(cell, " " * (room - cell.cell_length))
        if tag != " ":
            cell = cell.stylize_before("on $error 15%" if tag == "-" else "on $success 15%")
        cells.append(cell)
    middle = " | " if not layout.signs.unicode else " │ "
    return Row(Content.assemble(cells[0], (middle, MUTED), cells[1]), "", hunk, heat)


def _correspondence(model: DiffModel, layout: Layout) -> Iterator[Row]:
    """Each line of the reference that a kernel computes, with the kernel's lines; the rest of it only counted."""
    by_name = {entry.name: entry for entry in model.files}
    yield Row(
        plain(
            f"{model.reference.name} {layout.signs.arrow} {', '.join(by_name)}: only whole: a accepts it, r rejects it",
            "bold",
        ),
        "diff--file",
    )
    if not model.pairs:
        yield from (Row(row) for row in wrapped(Content("No origin comments: the files as they are."), layout.width))
        for file in model.files:
            yield Row(plain(file.name, "bold"), "diff--file")
            for number in range(1, _length(file.new_text) + 1):
                yield from _line(file, " ", None, number, None, replace(layout, sides=False))
        return
    shown = 0
    for first, last, kernels in model.pairs:
        if first - shown > 1:
            yield _gap_of_reference(first - shown - 1, layout)
        shown = max(shown, last)
        left = list(range(first, last + 1))
        right: list[Content] = []
        heats: list[float | None] = []
        for k, (name, start, end) in enumerate(kernels):
            if name not in by_name:
                continue
            file = by_name[name]
            place = f"{name}:{start}" + (f"-{end}" if end > start else "")
            right.append(plain(place if k == 0 else f"also {place}", "$text-secondary"))
            heats.append(None)
            inset = _inset(file.new, range(start, end + 1))
            for number in range(start, min(end, len(file.new)) + 1) if k == 0 else ():
                value = file.value(layout.metric, "new", number)
                text = "" if value is None else METRICS[layout.metric].show(value)
                lead = (f"{text:>7} ", "$text-warning") if layout.metric else ("", "")
                right.append(Content.assemble((f"{number:>4} ", MUTED), lead, file.new[number - 1][inset:]))
                heats.append(value)
        yield from (_two_columns if layout.sides else _one_column)(model.reference, left, right, heats, layout)


def _inset(lines: Sequence[Content], numbers: Sequence[int]) -> int:
    """Spaces that all these lines begin with."""
    texts = [lines[n - 1].plain for n in numbers if n <= len(lines) and lines[n - 1].plain.strip()]
    return min((len(text) - len(text.lstrip(" ")) for text in texts), default=0)


def _gap_of_reference(count: int, layout: Layout) -> Row:
    words = f"{count} line{'' if count == 1 else 's'} that no kernel names"
    return Row(Content.styled(f"  {layout.signs.rule * 3} {words}", MUTED))


def _two_columns(
    reference: File, left: Sequence[int], right: Sequence[Content], heats: Sequence[float | None], layout: Layout
) -> Iterator[Row]:
    room = max(16, (layout.width - 3) * 2 // 5)
    inset = _inset(reference.old, left)
    other = max(16, layout.width - 3 - room)
    bar = " │ " if layout.signs.unicode else " | "
    for number, cell, heat in zip_longest(left, right, heats):
        shown = Content("")
        if number is not None:
            text = reference.old[number - 1][inset:] if number <= len(reference.old) else Content("")
            shown = fitted(Content.assemble((f"{number:>4} ", MUTED), text), room, layout.signs.ellipsis)
        gap = " " * (room - shown.cell_length)
        yield Row(
            Content.assemble(shown, gap, (bar, MUTED), fitted(cell or Content(""), other, layout.signs.ellipsis)),
            heat=heat,
        )


def _one_column(
    reference: File, left: Sequence[int], right: Sequence[Content], heats: Sequence[float | None], layout: Layout
) -> Iterator[Row]:
    for number in left:
        text = reference.old[number - 1] if number <= len(reference.old) else Content("")
        yield Row(Content.styled(f"{number:>4} ", "bold"), "diff--hunk", code=text)
    for cell, heat in zip(right, heats, strict=True):
        yield Row(Content("  "), heat=heat, code=cell)
