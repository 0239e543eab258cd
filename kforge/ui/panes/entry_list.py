"""The timeline's list: one row an entry, more where it is expanded, at a cost that does not grow with their number."""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from kforge.ui.panes.entries import FILTERS, Entry
from kforge.ui.panes.glyphs import MUTED, glyphs
from kforge.ui.panes.rows import Rows, wrapped

MOST = 20_000  # entries kept; the oldest are in the run's log
DROPPED = 2_000  # at a time


class EntryList(Rows):
    """The lines themselves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "Down", show=False, id="timeline.down"),
        Binding("k", "move(-1)", "Up", show=False, id="timeline.up"),
        Binding("enter", "open", "Open", id="timeline.open"),
        Binding("space", "open", "Open", show=False, id="timeline.open_too"),
        Binding("right", "expand", "Open", show=False, id="timeline.expand"),
        Binding("left", "collapse", "Close", show=False, id="timeline.collapse"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.signs = glyphs()
        self.entries: list[Entry] = []
        self.shown: list[Entry] = []
        self.filter = "all"
        self.following = True
        self._expanded: set[Entry] = set()
        self._details: dict[Entry, list[Content]] = {}  # wrapped for the width, of what is expanded
        self._stale: set[Entry] = set()  # changed since they were wrapped
        self._open: list[Entry] = []  # expanded and shown, in order
        self._starts: list[int] = []  # their rows
        self._places: list[int] = []  # their positions, for bisect
        self._extra = 0
        self._made_for = 0

    @property
    def count(self) -> int:
        return len(self.shown) + self._extra

    def at(self, row: int) -> tuple[Entry, int]:
        """The entry of a row, and which of its lines: 0 is its title."""
        k = bisect_right(self._starts, row) - 1
        if k < 0:
            return self.shown[row], 0
        entry = self._open[k]
        below = row - self._starts[k]
        lines = len(self._details[entry])
        return (entry, below) if below <= lines else (self.shown[entry.position + below - lines], 0)

    def row_of(self, entry: Entry) -> int:
        """The row of a shown entry's title."""
        k = bisect_right(self._places, entry.position - 1) - 1
        if k < 0:
            return entry.position
        before = self._open[k]
        return self._starts[k] + len(self._details[before]) + entry.position - before.position

    @property
    def selected(self) -> Entry | None:
        """The entry under the cursor."""
        return self.at(self.cursor)[0] if self.shown else None

    def row(self, index: int) -> Content:
        entry, below = self.at(index)
        if below:
            return self._details[entry][below - 1]
        sign = self.signs.open if entry.expanded else self.signs.closed if entry.expandable else " "
        return Content.assemble((sign + " ", MUTED), entry.title(max(8, self._laid_out - 2), self.signs))

    def rebuild(self, width: int) -> None:
        chosen, below = self.at(self.cursor) if self.shown and self.cursor < self.count else (None, 0)
        self._lay_out(width)
        if self.following and self.count:
            self.cursor = self.count - 1
        elif chosen is not None and 0 <= chosen.position < len(self.shown) and self.shown[chosen.position] is chosen:
            self.cursor = self.row_of(chosen) + min(below, len(self._details.get(chosen, ())))

    def settle(self) -> None:
        super().settle()
        if self.following and self.count:
            self.show_row(self.count - 1)

    def add(self, entry: Entry) -> None:
        """A new entry at the end."""
        self.entries.append(entry)
        if len(self.entries) > MOST:
            self._expanded.difference_update(self.entries[:DROPPED])
            del self.entries[:DROPPED]
            self.choose(self.filter)
        elif FILTERS[self.filter](entry):
            entry.position = len(self.shown)
            self.shown.append(entry)
        self.renew()

    def changed(self, entry: Entry) -> None:
        """An entry shows something else."""
        self._stale.add(entry)
        if entry.position < 0 and FILTERS[self.filter](entry):  # it has become what the filter asks for
            self.choose(self.filter)
        if entry.position >= 0:
            self.renew()

    def empty(self) -> None:
        """Forget every entry."""
        self.entries.clear()
        self._expanded.clear()
        self._details.clear()
        self.following = True
        self.choose(self.filter)

    def choose(self, name: str) -> None:
        """Show what one of FILTERS lets through."""
        self.filter = name
        self.shown = []
        wanted = FILTERS[name]
        for entry in self.entries:
            entry.position = -1
            if wanted(entry):
                entry.position = len(self.shown)
                self.shown.append(entry)
        self.cursor = min(self.cursor, max(0, len(self.shown) - 1))
        self._lay_out(max(8, self._laid_out))
        self.renew()

    def cursor_moved(self) -> None:
        self.following = self.cursor >= self.count - 1

    def action_open(self) -> None:
        entry = self.selected
        if entry is not None:
            self._expand(entry, not entry.expanded)

    def action_expand(self) -> None:
        if self.selected is not None:
            self._expand(self.selected, True)

    def action_collapse(self) -> None:
        if self.selected is not None:
            self._expand(self.selected, False)

    def _expand(self, entry: Entry, wanted: bool) -> None:
        if not entry.expandable or entry.expanded == wanted:
            return
        entry.expanded = wanted
        (self._expanded.add if wanted else self._expanded.discard)(entry)
        self.following = False
        self.cursor = self.row_of(entry)
        self.settle()
        self.show_row(self.cursor)
        if wanted:
            self.show_row(min(self.count - 1, self.cursor + min(len(self._details[entry]), self.size.height - 1)))

    def _lay_out(self, width: int) -> None:
        """Rows of what is expanded; the others have one each, in the order of `shown`."""
        if width != self._made_for:
            self._details.clear()
            self._made_for = width
        self._open = sorted((e for e in self._expanded if e.position >= 0), key=lambda e: e.position)
        self._places = [entry.position for entry in self._open]
        self._starts, self._extra = [], 0
        for entry in self._open:
            self._starts.append(entry.position + self._extra)
            if entry not in self._details or entry in self._stale:
                parts = entry.details(self.signs)
                self._details[entry] = [row for part in parts for row in wrapped(part, width - 1, 4)]
            self._extra += len(self._details[entry])
        self._stale.clear()
        self._details = {entry: self._details[entry] for entry in self._open}
