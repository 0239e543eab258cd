"""A list of lines with a cursor, drawn by the line API: its cost does not grow with its length.

Panes derive from it and say how many rows there are and what each shows; nothing here knows what they mean.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

LONGEST = 4_000  # characters of a row that are laid out; nobody scrolls further, and a hostile line may have millions
SETTLE_S = 1 / 30  # changes within this time are drawn together


class Rows(ScrollView, can_focus=True):
    """`count` rows, each `row(i)`, in the colours of the component class `row_class(i)`.

    Call `renew()` when rows came, went or changed, `renew_row(i)` when one changed: it is drawn a little later, once.
    """

    DEFAULT_CSS = """
    Rows {
        text-wrap: nowrap; text-overflow: clip; overflow-x: hidden;
        scrollbar-gutter: stable; scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1;
    }
    Rows > .rows--cursor { background: $block-cursor-blurred-background; }
    Rows:focus > .rows--cursor { background: $primary 30%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False, id="rows.up"),
        Binding("down", "move(1)", "Down", show=False, id="rows.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="rows.page_up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="rows.page_down"),
        Binding("home", "move_to(0)", "First", show=False, id="rows.home"),
        Binding("end", "move_to(-1)", "Last", show=False, id="rows.end"),
    ]

    has_cursor = True

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.cursor = 0
        self._strips: dict[tuple[int, bool], Strip] = {}
        self._pending = False
        self._in_sight = False
        self._laid_out = 0  # width that the rows were made for
        self._widest = 0

    @property
    def count(self) -> int:
        """Rows there are."""
        raise NotImplementedError

    def row(self, index: int) -> Content:
        """What a row shows; its text without newlines."""
        raise NotImplementedError

    def row_class(self, index: int) -> str:
        """The component class of a row's colours, "" for none."""
        return ""

    def rebuild(self, width: int) -> None:
        """Make the rows again for a width: called before drawing after `renew()`, and when the width changes."""

    def widest(self) -> int:
        """Cells of the longest row, asked after each `rebuild`; 0: rows end where the pane does."""
        return 0

    def renew(self) -> None:
        """The rows changed. Out of sight they are made when they come into it."""
        if not self._pending:
            self._pending = True
            if self._in_sight:
                self.set_timer(SETTLE_S, self.settle)

    def renew_row(self, index: int) -> None:
        """One row shows something else."""
        self._forget(index)
        self.refresh(Region(0, index - self.scroll_offset.y, self.size.width, 1))

    def repaint(self) -> None:
        """The rows are the same, but look different."""
        self._strips.clear()
        self.refresh()

    def settle(self) -> None:
        """Draw what changed, now."""
        self._pending = False
        if not self.is_attached:
            return
        self._laid_out = self.scrollable_content_region.width
        self.rebuild(max(8, self._laid_out))
        self._strips.clear()
        self._widest = self.widest() or self._laid_out
        self.virtual_size = Size(self._widest, self.count)
        self.cursor = min(self.cursor, max(0, self.count - 1))
        self.refresh()

    def move_cursor(self, row: int, *, centre: bool = False) -> None:
        """Put the cursor on a row, in sight."""
        row = min(max(0, row), max(0, self.count - 1))
        before, self.cursor = self.cursor, row
        if before != row:
            self.renew_row(before)
            self.renew_row(row)
            self.cursor_moved()
        self.show_row(row, centre)

    def show_row(self, row: int, centre: bool = False) -> None:
        """Scroll until a row is in sight."""
        height, top = max(1, self.scrollable_content_region.height), self.scroll_offset.y
        if centre and not top <= row < top + height - 2:
            top = row - height // 3
        top = min(max(top, row - height + 1), row)
        if top != self.scroll_offset.y:
            self.scroll_to(y=max(0, top), animate=False, force=True, immediate=True)

    def cursor_moved(self) -> None:
        """The cursor is on another row."""

    def action_move(self, rows: int) -> None:
        if self.has_cursor:
            self.move_cursor(self.cursor + rows)
        else:
            self.scroll_relative(y=rows, animate=False)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.scrollable_content_region.height - 1))

    def action_move_to(self, row: int) -> None:
        self.action_move((row if row >= 0 else self.count + row) - (self.cursor if self.has_cursor else 0))

    def on_mount(self) -> None:
        super().on_mount()  # type: ignore[no-untyped-call]
        self.app.theme_changed_signal.subscribe(self, lambda _: self.renew())
        self.settle()

    def on_resize(self, event: events.Resize) -> None:
        if self.scrollable_content_region.width != self._laid_out:
            self.settle()

    def on_show(self) -> None:
        self._in_sight = True
        if self._pending:
            self.settle()

    def on_hide(self) -> None:
        self._in_sight = False

    def on_focus(self) -> None:
        self._cursor_repainted()

    def on_blur(self) -> None:
        self._cursor_repainted()

    def on_click(self, event: events.Click) -> None:
        row = event.y + self.scroll_offset.y
        if self.has_cursor and row < self.count:
            self.move_cursor(row)

    def render_line(self, y: int) -> Strip:
        """One line of what is in sight."""
        left, top = self.scroll_offset
        width, index = self.size.width, top + y
        if index >= self.count:
            return Strip.blank(width, self.visual_style.rich_style)
        marked = self.has_cursor and index == self.cursor
        strip = self._strips.get((index, marked))
        if strip is None:
            if len(self._strips) > 2_000:
                self._strips.clear()
            strip = self._strips[index, marked] = self._strip(index, marked)
        return strip.crop_extend(left, left + width, None)

    def _strip(self, index: int, marked: bool) -> Strip:
        content = self.row(index)
        if len(content.plain) > LONGEST:
            content = content[:LONGEST]
        own = self.row_class(index)
        names = [*([own] if own else []), *(["rows--cursor"] if marked else [])]
        style = self.get_visual_style(*names) if names else self.visual_style
        width = max(self.size.width, self._widest, 1)
        strips = Visual.to_strips(self, content, width, 1, style, apply_selection=False)
        strip = strips[0] if strips else Strip([])
        return strip.extend_cell_length(max(width, strip.cell_length), style.rich_style)

    def _forget(self, index: int) -> None:
        self._strips.pop((index, True), None)
        self._strips.pop((index, False), None)

    def _cursor_repainted(self) -> None:
        self.renew_row(self.cursor)


def wrapped(content: Content, width: int, indent: int = 0) -> list[Content]:
    """A text in rows of at most `width` cells, each behind `indent` spaces; empty lines stay."""
    room = max(4, width - indent)
    rows: list[Content] = []
    for line in content.expand_tabs(8).split("\n", allow_blank=True):
        if len(line.plain) > LONGEST:
            line = line[:LONGEST] + Content("…")
        rows += line.wrap(room) if line.plain else [line]
    return [Content(" " * indent) + row for row in rows] if indent else rows


def hanging(content: Content, width: int) -> list[Content]:
    """A line in rows of at most `width` cells, further ones two cells further in than the first."""
    inset = len(content.plain) - len(content.plain.lstrip(" "))
    lines = wrapped(content[inset:], width - inset - 2)
    return [Content(" " * (inset + 2 * (k > 0))) + line for k, line in enumerate(lines)]


def fitted(content: Content, width: int, ellipsis: str = "…") -> Content:
    """One row of at most `width` cells; what is cut off is marked."""
    if content.cell_length <= width:
        return content
    return content.truncate(max(0, width - 1)) + Content(ellipsis)
