"""One file in the editor: its text, what is on disk, what is unsaved, and where its figures and marks stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import EditResult
from textual.document._edit import Edit

from kforge.errors import KforgeError
from kforge.ui import files, highlight
from kforge.ui.diagnostics import Diagnostic
from kforge.ui.gutter import Figures, GutterArea, Mark
from kforge.ui.vim import Vim


class Buffer(GutterArea):
    """The text of one file. path: where it is saved, None for a candidate shown out of the store (read only)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+shift+z", "redo", "Redo", show=False),
    ]

    def __init__(self, name: str, path: Path | None, text: str, *, vim: bool = False) -> None:
        self.file = name
        self.path = path
        self.disk = text  # what is on disk, as far as is known
        self.saved = text  # the same as the editor has it: of mixed line ends the first counts
        self.conflict = False  # the file changed on disk while there are edits here
        self.other = ""  # where another version of it is that edits here keep from being shown
        self.why = ""  # it is read only: an excerpt of a huge text
        self.of: Path | None = None  # the file that is shown read only
        self.gone = False  # there is no such file any more: this is the only copy
        self._asked: str | None = None  # what saving would overwrite, as the person was told
        self.vim = Vim() if vim else None
        self.facts: Mapping[str, Any] = {}  # of kforge.profiling.annotate, as data
        self.metric = ""
        self._measured = text  # the text that figures and marks belong to
        super().__init__(text=text, read_only=path is None)
        self.saved = self._measured = self.text

    def on_mount(self) -> None:
        """Colours."""
        highlight.set_language(self, Path(self.file))
        highlight.follow_theme(self)
        self.app.theme_changed_signal.subscribe(self, lambda _: highlight.follow_theme(self))

    @property
    def dirty(self) -> bool:
        """Whether there are unsaved edits."""
        return self.path is not None and (self.gone or self.text != self.saved)

    def save(self) -> None:
        """Write the text to its path, whole or not at all. KforgeError where it cannot be written.

        What another program wrote meanwhile is overwritten only when it was said before: the second time.
        """
        if self.path is None:
            hint = "edit it in another program" if self.of is not None else "accept a candidate to edit it"
            raise KforgeError(f"{self.file} is read only here and cannot be saved", hint)
        text = self.text
        there = files.read(self.path)[0] if self.path.is_file() else None
        if there is not None and there not in (self.disk, text, self._asked):
            self.conflict, self._asked = True, there
            raise KforgeError(f"{self.file} changed on disk meanwhile", "save again overwrites it, alt-r takes it")
        if there is None or self.dirty or self.conflict:
            files.write(self.path, text)
            self.disk = text
        self.on_disk(self.disk, text)

    def on_disk(self, disk: str, text: str) -> None:
        """Editor and disk agree: `disk` is there, which is `text` here."""
        self.disk, self.saved, self._asked = disk, text, None
        self.conflict = self.gone = False
        self.other = ""

    def belong(self, path: Path, why: str = "", *, editable: bool) -> None:
        """It is this file's text from now on. why: what it is an excerpt of, in words."""
        self.path, self.of = (path, None) if editable else (None, path)
        self.why, self.read_only = why, not editable

    def take_text(self, text: str, *, saved: bool = True) -> None:
        """Another text for the whole file as one undoable step; the cursor stays where it can."""
        place, scroll = self.cursor_location, self.scroll_offset
        if text != self.text:
            self.history.checkpoint()
            self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
            self.history.checkpoint()
            last = self.document.line_count - 1
            self.move_cursor((min(place[0], last), place[1]))
            self.scroll_to(scroll.x, scroll.y, animate=False)
        if saved:
            self.on_disk(text, self.text)

    def edit(self, edit: Edit) -> EditResult:
        """As TextArea does; a text that becomes huge by it (a paste) loses its colours first."""
        if self.coloured and self.document.line_count + edit.text.count("\n") > highlight.HIGHLIGHTED_LINES:
            self.drop_colours()
        return super().edit(edit)

    # figures and marks

    def measured(self, text: str | None = None) -> None:
        """The text, by default that of now, is the one that figures and marks shown from now on belong to."""
        self._measured = self.text if text is None else text
        self.stale = self.text != self._measured

    def take_facts(self, facts: Mapping[str, Any]) -> None:
        """What the profile says of this file's lines; its most telling metric is shown."""
        self.facts = facts
        metrics = self.metrics
        self.metric = self.metric if self.metric in metrics else (metrics[0] if metrics else "")
        self._show_metric()

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics that some line has a figure of."""
        return list(self.facts.get("metrics") or ())

    def cycle_metric(self) -> str:
        """Show the next metric; after the last one none. Returns its title, "" for none."""
        choices = [*self.metrics, ""]
        self.metric = choices[(choices.index(self.metric) + 1) % len(choices)] if self.metric in choices else choices[0]
        self._show_metric()
        return self.figures.title

    def _show_metric(self) -> None:
        from kforge.profiling.annotate.lines import METRICS

        metric = METRICS.get(self.metric)
        if metric is None:
            self.show_figures(Figures())
            return
        values = {
            int(line) - 1: float(row["values"][metric.name])
            for line, row in (self.facts.get("lines") or {}).items()
            if row.get("values", {}).get(metric.name) is not None
        }
        texts = {line: metric.show(value) for line, value in values.items()}
        self.show_figures(Figures(metric.name, f"{metric.title}: {metric.unit}", values, texts))
        self.stale = self.text != self._measured

    def hot_line(self, step: int) -> int | None:
        """Go to the next (1) or previous (-1) hottest line, starting at the hottest; None where there is none."""
        order = self.figures.hottest
        if not order:
            return None
        here = self.cursor_location[0]
        line = order[(order.index(here) + step) % len(order)] if here in order else order[0]
        self.go_to(line + 1)
        return line

    def take_diagnostics(self, found: Iterable[Diagnostic]) -> None:
        """Mark the lines that something is wrong on; an error hides a warning of the same line."""
        marks: dict[int, Mark] = {}
        for diagnostic in sorted(found, key=lambda d: d.severity):
            line = max(0, min(diagnostic.line, self.document.line_count) - 1)
            marks.setdefault(line, Mark(diagnostic.text, diagnostic.severity))
        self.show_marks(marks)
        self.stale = self.text != self._measured

    @property
    def hint(self) -> str:
        """What is known of the cursor's line: a diagnostic, else the reason that its warps wait for."""
        line = self.cursor_location[0]
        mark = self.marks.get(line)
        if mark is not None:
            return mark.text
        row = (self.facts.get("lines") or {}).get(str(line + 1), {})
        return f"waits for: {row['stall']}" if row.get("stall") else ""

    # moving and finding

    def go_to(self, line: int) -> None:
        """Put the cursor on a line, counted from 1, in the middle of the view."""
        self.move_cursor((max(0, min(line, self.document.line_count) - 1), 0), center=True)

    def find(self, words: str, *, forward: bool = True) -> bool:
        """Select the next occurrence after the cursor, around the end; case matters where a capital is in `words`."""
        if not words:
            return False
        text = self.text
        where = text if words != words.lower() else _lower(text)
        start, end = sorted(self._index(place) for place in self.selection)
        if forward:
            at = where.find(words, end)
            at = where.find(words) if at < 0 else at
        else:
            at = where.rfind(words, 0, start)
            at = where.rfind(words) if at < 0 else at
        if at < 0:
            return False
        self.move_cursor(self._place(at))
        self.move_cursor(self._place(at + len(words)), select=True, center=True)
        return True

    def _index(self, place: tuple[int, int]) -> int:
        newline = len(self.document.newline)
        return sum(len(line) + newline for line in self.document.lines[: place[0]]) + place[1]

    def _place(self, index: int) -> tuple[int, int]:
        newline = len(self.document.newline)
        for row, line in enumerate(self.document.lines):
            if index <= len(line):
                return row, index
            index -= len(line) + newline
        return self.document.end

    def on_text_area_changed(self) -> None:
        """Figures and marks are of another text now."""
        if self.text != self._measured:
            self.make_stale()
        elif self.stale:
            self.stale = False
            self._gutter_changed()

    async def _on_key(self, event: events.Key) -> None:
        if self.vim is not None and self.vim.key(self, event.key, event.character):
            event.stop()
            event.prevent_default()
            return
        if event.key == "escape":  # TextArea would move the focus; the app counts escapes
            event.prevent_default()
            return
        await super()._on_key(event)


def _lower(text: str) -> str:
    """In small letters, as long as before: some characters have a small form of two."""
    return text.lower() if text.isascii() else "".join(low if len(low := c.lower()) == 1 else c for c in text)
