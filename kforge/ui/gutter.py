"""An editor whose gutter carries one profile figure and one mark a line. The only module that uses TextArea's insides.

Figures turn grey as soon as the text is edited: they describe what was measured, not what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.document._wrapped_document import WrappedDocument
from textual.geometry import Offset, Size
from textual.strip import Strip
from textual.widgets import TextArea

from kforge.ui.text import clean

FIGURE = 8  # cells of the figure column, with the space after it
MARK = 2


# What costs nothing: a figure at its ideal is never hot. Of "width" less is hotter: 16 bytes are one whole access.
IDEAL = {"excess": 1.0, "conflicts": 1.0, "width": 16.0}
FALLING = {"width"}
SLACK = 1e-3
STEP = 16  # cells
DRAWN = 500  # lines kept as they were drawn


@dataclass(frozen=True)
class Mark:
    """What is wrong on a line. severity: error or warning."""

    text: str
    severity: str = "error"


@dataclass(frozen=True)
class Figures:
    """One metric of one file: values and texts by line from 0. title: of the metric, with its unit."""

    metric: str = ""
    title: str = ""
    values: Mapping[int, float] = field(default_factory=dict)
    texts: Mapping[int, str] = field(default_factory=dict)

    def over(self, line: int) -> float:
        """By how much a line exceeds the ideal; 0 where it does not."""
        value, ideal = self.values[line], IDEAL.get(self.metric, 0.0)
        excess = ideal - value if self.metric in FALLING else value - ideal
        return excess if excess > SLACK else 0.0

    @property
    def hottest(self) -> list[int]:
        """Lines that cost more than the ideal, hottest first."""
        return sorted((n for n in self.values if self.over(n)), key=lambda line: (-self.over(line), line))

    def heat(self, line: int) -> float:
        """0 to 1: the share of the hottest line's excess."""
        top = max(map(self.over, self.values), default=0.0)
        return self.over(line) / top if top else 0.0


class _Counted(WrappedDocument):
    """Textual's counts all lines anew for its height, for each line that is drawn."""

    @property
    def height(self) -> int:
        """Lines as they are drawn."""
        return len(self._offset_to_line_info)


class GutterArea(TextArea):
    """TextArea with a figure column and a mark column left of the line numbers, each only where there is something."""

    # TextArea.__init__ reads gutter_width before the body of ours runs.
    figures = Figures()
    marks: Mapping[int, Mark] = {}
    stale = False

    def __init__(self, **kwargs: Any) -> None:
        self._drawn: dict[Any, Strip] = {}
        super().__init__(show_line_numbers=True, soft_wrap=False, tab_behavior="indent", **kwargs)

    def _set_document(self, text: str, language: str | None) -> None:
        super()._set_document(text, language)
        self.wrapped_document.__class__ = _Counted

    def _rewrap_and_refresh_virtual_size(self) -> None:
        """As TextArea does; lines that are not wrapped are left as they are, looking at all takes long."""
        wrapped = self.wrapped_document
        if self.soft_wrap or wrapped.document is not self.document or wrapped._tab_width != self.indent_width:
            super()._rewrap_and_refresh_virtual_size()
            return
        self._line_cache.clear()
        self._refresh_size()

    def show_figures(self, figures: Figures) -> None:
        """Show one metric's figures; an empty Figures removes the column."""
        self.figures, self.stale = figures, False
        self._drawn.clear()
        self._gutter_changed()

    def show_marks(self, marks: Mapping[int, Mark]) -> None:
        """Show what is wrong by line from 0; an empty mapping removes the column."""
        self.marks = dict(marks)
        self._gutter_changed()

    def make_stale(self) -> None:
        """The text is no longer the one that the figures were measured on."""
        if not self.stale and (self.figures.values or self.marks):
            self.stale = True
            self._line_cache.clear()
            self.refresh()

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """As TextArea does. Amid an undo the cursor may be on a line that is gone: it is moved right after."""
        if self.selection.end[0] >= self.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)

    @property
    def coloured(self) -> bool:
        """Whether the text is highlighted."""
        return self._highlight_query is not None

    def drop_colours(self) -> None:
        """Highlight no longer: each key would query the whole of a huge text."""
        self._highlight_query = None
        self._highlights.clear()
        self._line_cache.clear()

    @property
    def _extra(self) -> int:
        return (FIGURE if self.figures.values else 0) + (MARK if self.marks else 0)

    @property
    def gutter_width(self) -> int:
        """Cells left of the text."""
        return super().gutter_width + self._extra

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn: control characters of a foreign file must not reach the terminal."""
        raw = self.document.get_line(line_index)
        safe = clean(raw)
        return Text(safe if len(safe) == len(raw) else raw.replace("\r", "�"), end="", no_wrap=True)

    def _gutter_changed(self) -> None:
        self._line_cache.clear()
        self._rewrap_and_refresh_virtual_size()
        self.refresh(layout=True)

    def render_line(self, y: int) -> Strip:
        """A line that is as it was is not drawn anew, though others were edited: a key costs one line, not all."""
        offset = y + self.scroll_offset[1]
        if offset >= self.wrapped_document.height:
            return self._render_line(y)
        line, section = self.wrapped_document._offset_to_line_info[offset]
        start, end = sorted(self.selection)
        bracket = self._matching_bracket_location
        if start[0] <= line <= end[0] or self.suggestion or (bracket is not None and bracket[0] == line):
            return self._render_line(y)
        key = (
            line, section, self.document.get_line(line), tuple(self._highlights.get(line, ())),
            self.size, self.scroll_offset[0], self.gutter_width,
            self.app.theme, self.theme, self.has_focus, self.read_only, self.stale, id(self.figures),
            self.marks.get(line),
        )  # fmt: skip
        found = self._drawn.get(key)
        if found is None:
            if len(self._drawn) >= DRAWN:
                self._drawn.clear()
            found = self._drawn[key] = self._render_line(y).crop(0, self.size.width)
        return found

    def validate_virtual_size(self, size: Size) -> Size:
        """Wider in steps: a key in the longest line would lay out the whole screen."""
        width = size.width if size.width <= self.size.width else -(-size.width // STEP) * STEP
        return Size(width, size.height)

    def _render_line(self, y: int) -> Strip:
        strip = super()._render_line(y)
        extra = self._extra
        offset = y + self.scroll_offset[1]
        if not extra or offset >= self.wrapped_document.height:
            return strip
        line, section = self.wrapped_document._offset_to_line_info[offset]
        # TextArea has drawn its numbers in a column that is `extra` cells too wide, padded on the left.
        return Strip.join([Strip(self._cells(line, section == 0), extra), strip.crop(extra)])

    def _cells(self, line: int, first: bool) -> list[Segment]:
        gutter = self.get_component_rich_style("text-area--gutter", partial=False)
        cells = []
        if self.marks:
            mark = self.marks.get(line) if first else None
            colour = self._variable(mark.severity if mark else "error", "#ff0000")
            sign = "● " if mark and mark.severity == "error" else "▲ " if mark else "  "  # ASCII by the app's filter
            cells.append(Segment(sign, gutter + (Style(dim=True) if self.stale else Style(color=colour))))
        if self.figures.values:
            text = self.figures.texts.get(line, "") if first else ""
            style = gutter
            if text:
                style = gutter + (Style(dim=True) if self.stale else self._heat(self.figures.heat(line)))
            cells.append(Segment(f"{text[: FIGURE - 1]:>{FIGURE - 1}} ", style))
        return cells

    def _heat(self, heat: float) -> Style:
        from textual.color import Color

        if not heat:
            return Style()
        back, hot = Color.parse(self._variable("surface", "#202020")), Color.parse(self._variable("error", "#c04040"))
        blended = back.blend(hot, 0.1 + 0.7 * heat)
        return Style(color=blended.get_contrast_text().blend(blended, 0.05).hex6, bgcolor=blended.hex6)

    def _variable(self, name: str, fallback: str) -> str:
        from kforge.ui.themes import colour

        return colour(self.app.theme_variables, name, fallback)
