"""A modal list of foreign texts, one a line, one to choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from kforge.ui.text import plain


class ListScreen(ModalScreen[str | None]):
    """Returns the key of the row that was chosen, None for none. rows: (key, line)."""

    DEFAULT_CSS = """
    ListScreen { align: center middle; }
    ListScreen > Vertical { width: 90%; max-width: 120; height: auto; max-height: 90%; border: round $primary;
                            background: $surface; padding: 0 1; }
    ListScreen OptionList, ListScreen OptionList:focus { height: auto; max-height: 24; border: none; padding: 0; }
    ListScreen #note { color: $text-muted; height: auto; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "Back")]

    def __init__(self, title: str, rows: Sequence[tuple[str, Content | str]], note: str = "") -> None:
        super().__init__()
        self._title, self.rows, self._note = title, list(rows), note

    def compose(self) -> ComposeResult:
        """Title, list, note."""
        with Vertical():
            yield Static(plain(self._title, "bold"))
            shown = [(key, plain(line) if isinstance(line, str) else line) for key, line in self.rows]
            yield OptionList(*(Option(line, id=f"row-{n}") for n, (_, line) in enumerate(shown)))
            yield Static(plain(self._note or "enter: choose   escape: back"), id="note")

    def on_mount(self) -> None:
        """The list has the keys."""
        self.query_one(OptionList).focus()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.rows[event.option_index][0])

    def action_leave(self) -> None:
        """Nothing was chosen."""
        self.dismiss(None)
