"""Text for a terminal: foreign text made harmless, colours where they are wanted, tables."""

from __future__ import annotations

import os
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def plain(text: str) -> str:
    """Foreign text (source, compiler output, paths, model text) that cannot move the cursor or change colours.

    Control and formatting characters except newline and tab are shown as U+FFFD; nothing in it is markup.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cf", "Cs"} else "�" for c in text)


def use_colour(stream: TextIO) -> bool:
    """Colours only on a terminal that has them, and not where NO_COLOR is set (no-color.org)."""
    return has_cursor(stream) and not os.environ.get("NO_COLOR")


def has_cursor(stream: TextIO) -> bool:
    """Whether a line on this stream can be rewritten."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def style(text: str, name: str, enabled: bool) -> str:
    """`text` in one of the styles bold, dim, red, green, yellow, cyan; unchanged when colours are off."""
    return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if enabled else text


def width(stream: TextIO) -> int:
    """Columns of the terminal behind `stream`; where it is none those of COLUMNS, else 80. At least 40."""
    try:
        return max(40, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return max(40, shutil.get_terminal_size((80, 24)).columns)


def fill(text: str, columns: int, indent: str = "", hang: str = "    ") -> str:
    """One paragraph in lines of at most `columns`, made harmless; a word that is longer stays whole."""
    return textwrap.fill(
        plain(" ".join(text.split())),
        columns,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
        break_long_words=False,
    )


def table(rows: Sequence[Sequence[str]], indent: str = "  ", columns: int | None = None) -> str:
    """Rows of equal length in aligned columns, two spaces apart; cells are made harmless and single-line.

    columns: the last cell of a row continues on lines below itself where it would end beyond that many.
    """
    cells = [[" ".join(plain(cell).split()) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    start = len(indent) + sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(16, columns - start) if columns is not None else None
    lines = []
    for row in cells:
        head = indent + "".join(cell.ljust(w) + "  " for cell, w in zip(row[:-1], widths[:-1], strict=True))
        last = textwrap.wrap(row[-1], room, break_on_hyphens=False) if room is not None else [row[-1]]
        lines += [(head + (last[0] if last else "")).rstrip(), *(" " * start + more for more in last[1:])]
    return "\n".join(lines)
