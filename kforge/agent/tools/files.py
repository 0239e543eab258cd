"""Tools on the candidate's files: list, read, write, edit. They reach the working folder and nothing else."""

from __future__ import annotations

from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import Toolbox, ToolError


@tool
def list_files(box: Toolbox) -> str:
    """List the files of your candidate, with their sizes. The module `<op>_kforge.py` must define ModelNew."""
    names = box.files.names()
    if not names:
        return f"no files yet; the module must be named {box.module} and define ModelNew"
    rows = []
    for name in names:
        text = box.files.read(name)
        rows.append(f"{name}: {text.count(chr(10)) + 1} lines, {len(text)} characters")
    if box.module not in names:
        rows.append(f"missing: {box.module}, which must define ModelNew")
    return "\n".join(rows)


@tool
def read_file(box: Toolbox, name: str, first_line: int = 1, lines: int = 400) -> str:
    """Read a file of your candidate, each line with its number.

    name: the file's name.
    first_line: the line to begin at, from 1.
    lines: how many lines.
    """
    return numbered(box.files.read(name), name, first_line, lines, box.limits.page)


@tool
def write_file(box: Toolbox, name: str, text: str) -> str:
    """Write a file of your candidate whole, new or over an old one. Names end in .py, .cu, .cuh or .h.

    name: the file's name; files lie in one flat folder.
    text: all of the file's text.
    """
    new = box.files.write(name, text)
    return f"{'wrote' if new else 'wrote over'} {name}: {text.count(chr(10)) + 1} lines"


@tool
def edit_file(box: Toolbox, name: str, old: str, new: str) -> str:
    """Replace one passage of a file. The passage must occur exactly once, character by character.

    name: the file's name.
    old: the passage as it stands in the file, without line numbers, long enough to be unique.
    new: the text in its place; empty to delete it.
    """
    text = box.files.read(name)
    if not old:
        raise ToolError("old is empty", "give the passage to replace; write_file writes a whole file")
    count = text.count(old)
    if count == 0:
        raise ToolError(f"the passage does not occur in {name}", _hint(text, old))
    if count > 1:
        lines = [str(line) for line in _lines_of(text, old)[:10]]
        raise ToolError(
            f"the passage occurs {count} times in {name} (lines {', '.join(lines)})",
            "take more of the text around it",
        )
    if old == new:
        raise ToolError("old and new are the same: nothing was changed")
    at = _lines_of(text, old)[0]
    changed = text.replace(old, new)
    box.files.write(name, changed)
    shown = numbered(changed, name, max(1, at - 2), new.count("\n") + 5, box.limits.page, title=False)
    return f"edited {name}:\n{shown}"


def numbered(text: str, name: str, first: int, count: int, limit: int, *, title: bool = True) -> str:
    """Some lines of a text with their numbers, at most `limit` characters, and what there is besides."""
    if first < 1 or count < 1:
        raise ToolError("first_line and lines are counted from 1")
    rows = text.split("\n")
    if rows and not rows[-1]:
        rows.pop()
    if first > max(len(rows), 1):
        raise ToolError(f"{name} has {len(rows)} lines", "begin at one of them")
    shown: list[str] = []
    used = 0
    for number, row in enumerate(rows[first - 1 : first - 1 + count], first):
        line = f"{number:>5}  {row if len(row) <= 2000 else row[:2000] + ' [... line cut]'}"
        used += len(line) + 1
        if used > limit and shown:
            break
        shown.append(line)
    last = first + len(shown) - 1
    head = [f"{name}, lines {first} to {last} of {len(rows)}"] if title else []
    more = [f"[{len(rows) - last} more lines: begin at {last + 1}]"] if title and last < len(rows) else []
    return "\n".join([*head, *shown, *more])


def _lines_of(text: str, passage: str) -> list[int]:
    """The line in which each occurrence of a passage begins."""
    found, at = [], text.find(passage)
    while at >= 0:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(passage, at + len(passage))
    return found


def _hint(text: str, old: str) -> str:
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    near = [str(n) for n, line in enumerate(text.split("\n"), 1) if first and first in line]
    if near:
        return f"its first line occurs in line {', '.join(near[:5])}: spaces or later lines differ; read the file again"
    return "read the file again: it may have changed"
