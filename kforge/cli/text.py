"""Text for a terminal: foreign text made harmless, colours where they are wanted, tables."""

from __future__ import annotations

import os
import shutil
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
    """Columns of the terminal behind `stream`, or 100 where it is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return shutil.get_terminal_size((100, 24)).columns


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Rows of equal length in aligned columns, two spaces apart; cells are made harmless and single-line."""
    cells = [[" ".join(plain(cell).split()) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join(
        (indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))).rstrip() for row in cells
    )
