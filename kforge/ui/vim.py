"""Vim motions for the editor, as an option: normal and insert mode, counts, the everyday operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.widgets import TextArea

Motion = Callable[["TextArea"], None]

_MOTIONS: dict[str, Motion] = {
    "h": lambda a: a.action_cursor_left(),
    "j": lambda a: a.action_cursor_down(),
    "k": lambda a: a.action_cursor_up(),
    "l": lambda a: a.action_cursor_right(),
    "w": lambda a: a.action_cursor_word_right(),
    "b": lambda a: a.action_cursor_word_left(),
    "0": lambda a: a.move_cursor((a.cursor_location[0], 0)),
    "^": lambda a: a.action_cursor_line_start(),
    "$": lambda a: a.action_cursor_line_end(),
}


class Vim:
    """The state of one editor's modal keys. mode: normal or insert; register: the text of the last x, dd or yy."""

    def __init__(self) -> None:
        self.mode = "normal"
        self.count = ""
        self.pending = ""  # d, y or g, waiting for its second key
        self.register = ""

    @property
    def shown(self) -> str:
        """For the status line: the mode, and what was typed of a command."""
        return f"{self.mode.upper()}{' ' + self.count + self.pending if self.count or self.pending else ''}"

    def key(self, area: TextArea, key: str, character: str | None) -> bool:
        """Handle a key; False where the editor shall handle it as it does without vim."""
        if self.mode == "insert":
            if key == "escape":
                self.mode = "normal"
                return True
            return False
        if key == "escape":
            self.count = self.pending = ""
            return False  # the app counts escapes
        if key == "ctrl+r":
            area.redo()
            return True
        if character is None or not character.isprintable():
            return key in ("enter", "tab", "backspace", "delete")  # no text changes in normal mode
        if character.isdigit() and (self.count or character != "0"):
            self.count += character
            return True
        self._command(area, character)
        return True

    def _command(self, area: TextArea, character: str) -> None:
        times, pair = min(int(self.count or 1), 9999), self.pending + character
        had_count = bool(self.count)
        self.count = self.pending = ""
        if character in "dyg" and len(pair) == 1:
            self.pending, self.count = character, str(times) if had_count else ""
        elif pair in _MOTIONS:
            for _ in range(times):
                _MOTIONS[pair](area)
        elif pair in ("gg", "G"):
            last = area.document.line_count - 1
            area.move_cursor((min(times - 1, last) if had_count else (0 if pair == "gg" else last), 0))
        elif pair in ("dd", "yy"):
            self._lines(area, times, delete=pair == "dd")
        elif pair == "x":
            row, column = area.cursor_location
            end = (row, min(column + times, len(area.document.get_line(row))))
            self.register = area.get_text_range((row, column), end)
            _edit(area, lambda: area.delete((row, column), end))
        elif pair == "p":
            self._put(area, times)
        elif pair == "u":
            for _ in range(times):
                area.undo()
        elif pair in ("i", "a", "o", "O", "A", "I"):
            self._insert(area, pair)

    def _insert(self, area: TextArea, how: str) -> None:
        row, column = area.cursor_location
        end = len(area.document.get_line(row))
        if how == "a":
            area.move_cursor((row, min(column + 1, end)))
        elif how == "A":
            area.move_cursor((row, end))
        elif how == "I":
            area.action_cursor_line_start()
        elif how == "o":
            _edit(area, lambda: area.insert("\n", (row, end)))
            area.move_cursor((row + 1, 0))
        elif how == "O":
            _edit(area, lambda: area.insert("\n", (row, 0)))
            area.move_cursor((row, 0))
        self.mode = "insert"

    def _lines(self, area: TextArea, times: int, *, delete: bool) -> None:
        row = area.cursor_location[0]
        count = area.document.line_count
        last = min(row + times, count)
        end = (last, 0) if last < count else area.document.end
        self.register = area.get_text_range((row, 0), end).rstrip("\n") + "\n"
        if delete:
            begin = (row - 1, len(area.document.get_line(row - 1))) if last == count and row else (row, 0)
            _edit(area, lambda: area.delete(begin, end))
            area.move_cursor((min(row, area.document.line_count - 1), 0))

    def _put(self, area: TextArea, times: int) -> None:
        row, column = area.cursor_location
        text = self.register * times
        if not text:
            return
        if not text.endswith("\n"):
            _edit(area, lambda: area.insert(text, (row, min(column + 1, len(area.document.get_line(row))))))
            return
        line = area.document.get_line(row)
        _edit(area, lambda: area.insert("\n" + text[:-1], (row, len(line))))
        area.move_cursor((row + 1, 0))


def _edit(area: TextArea, change: Callable[[], object]) -> None:
    if not area.read_only:
        area.history.checkpoint()
        change()
