"""The lines of a comparison, with the hunk that is decided on next."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content

from kforge.ui.gutter import Figures
from kforge.ui.panes.diff_model import DiffModel
from kforge.ui.panes.diff_rows import Layout, Parts, Row, rows
from kforge.ui.panes.glyphs import glyphs
from kforge.ui.panes.rows import LONGEST, Rows

ROOMY = 90  # cells


class DiffView(Rows):
    """The lines of the comparison that is shown."""

    DEFAULT_CSS = """
    DiffView { overflow-x: auto; }
    DiffView > .diff--add { background: $success 15%; }
    DiffView > .diff--remove { background: $error 15%; }
    DiffView > .diff--hunk { background: $panel; }
    DiffView > .diff--current { background: $primary 25%; text-style: bold; }
    DiffView > .diff--file { background: $primary 15%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "diff--add", "diff--remove", "diff--hunk", "diff--file", "diff--current",
    }  # fmt: skip

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.signs = glyphs()
        self.model: DiffModel | None = None
        self.rows: list[Row] = []
        self.sides = False
        self.metric = ""
        self.current = 0  # hunk
        self._made: tuple[DiffModel, Layout] | None = None  # what the parts were made for
        self._parts: Parts = {}

    @property
    def count(self) -> int:
        return len(self.rows)

    def row(self, index: int) -> Content:
        row = self.rows[index]
        text = row.content if row.code is None else row.content + row.code
        if row.hunk is None or row.look == "diff--file":
            return Content.assemble(" ", text)
        bar = "▌" if self.signs.unicode else "|"
        return Content.assemble((bar if row.hunk == self.current else " ", "$primary"), text)

    def row_class(self, index: int) -> str:
        row = self.rows[index]
        return "diff--current" if row.look == "diff--hunk" and row.hunk == self.current else row.look

    def rebuild(self, width: int) -> None:
        if self.model is None:
            self.rows = []
            return
        layout = Layout(width - 1, self.signs, self.metric, self.two_columns)
        if self._made != (self.model, layout):
            self._made, self._parts = (self.model, layout), {}
        self.rows = rows(self.model, layout, self._parts)

    @property
    def two_columns(self) -> bool:
        """The reference stands beside its kernels wherever there is room, and hunks when that was asked for."""
        if self.model is None or self.model.related:
            return self.sides
        return (self._laid_out >= ROOMY) != self.sides

    def widest(self) -> int:
        if self.two_columns:
            return 0
        wide = ((row.content.cell_length, row.code.cell_length) for row in self.rows if row.code is not None)
        longest = max((lead + code + 1 for lead, code in wide), default=0)
        return min(LONGEST, longest) if longest > self._laid_out else 0

    def cursor_moved(self) -> None:
        hunk = self.rows[self.cursor].hunk if self.cursor < len(self.rows) else None
        if hunk is not None and hunk != self.current:
            self.current = hunk
            self.repaint()

    def go_to_hunk(self, hunk: int) -> None:
        """Put the cursor on a hunk's header."""
        self.current = hunk
        self.repaint()
        place = next((i for i, row in enumerate(self.rows) if row.hunk == hunk), None)
        if place is not None:
            self.move_cursor(place, centre=True)

    def hot_rows(self) -> list[int]:
        """Rows whose figure exceeds the ideal, hottest first."""
        values = {i: row.heat for i, row in enumerate(self.rows) if row.heat is not None}
        return Figures(self.metric, values=values).hottest
