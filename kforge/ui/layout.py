"""Where things are: editor left, panes right; one of both with tabs where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Tab, Tabs

from kforge.ui.editor import EditorPane, FileTabs

PANES = {"timeline": "Timeline", "diff": "Diff", "profile": "Profile", "tree": "Search tree", "log": "Log"}
EDITOR = "editor"
NARROW = 100

# Of the app: a widget's own rules cannot look above it.
CSS = """
* {
    scrollbar-size-vertical: 1;
    scrollbar-color: $foreground 20%; scrollbar-color-hover: $foreground 35%; scrollbar-color-active: $primary;
    scrollbar-background: $surface; scrollbar-background-hover: $surface; scrollbar-background-active: $surface;
    scrollbar-corner-color: $surface;
}
.-narrow Desk { layout: vertical; }
.-narrow Desk #left { width: 1fr; height: 1fr; border: none; }
.-narrow Desk #right { width: 1fr; dock: top; height: 2; }
.-narrow Desk #tab-editor { display: block; }
.-narrow Desk.-pane #left { display: none; }
.-narrow Desk.-pane #right { height: 100%; }
"""


@runtime_checkable
class Pane(Protocol):
    """What the right-hand panes have in common."""

    def on_core_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take one event in."""
        ...


class Desk(Horizontal):
    """The editor and the panes. In a narrow terminal the tabs lead to the editor too, and one of both is shown."""

    DEFAULT_CSS = """
    Desk { height: 1fr; }
    Desk #left { width: 3fr; border-right: solid $panel; }
    Desk #right { width: 2fr; }
    Desk #pane-tabs { height: 2; }
    Desk #panes { height: 1fr; }
    Desk #panes > * { height: 1fr; }
    Desk #tab-editor { display: none; }
    """

    def __init__(self, panes: Mapping[str, Widget], *, vim: bool) -> None:
        super().__init__()
        self.panes = dict(panes)
        self.editor = EditorPane(vim=vim, id=EDITOR)
        self.pane = "timeline"  # of the right side

    def compose(self) -> ComposeResult:
        """Left and right."""
        with Vertical(id="left"):
            yield self.editor
        with Vertical(id="right"):
            tabs = [Tab("Editor", id="tab-editor"), *(Tab(title, id=f"tab-{name}") for name, title in PANES.items())]
            yield FileTabs(*tabs, id="pane-tabs", active="tab-timeline")
            with ContentSwitcher(id="panes", initial="pane-timeline"):
                for name, widget in self.panes.items():
                    widget.id = f"pane-{name}"
                    yield widget

    def on_resize(self) -> None:
        """Between narrow and wide another tab may be the one in sight."""
        self.call_after_refresh(self._mark)

    def _mark(self) -> None:
        if self.is_attached:
            self.query_one("#pane-tabs", Tabs).active = f"tab-{self.shown}"

    @property
    def narrow(self) -> bool:
        """Whether there is room for one side only."""
        return self.screen.has_class("-narrow")

    @property
    def shown(self) -> str:
        """The pane in sight; in a narrow terminal perhaps the editor."""
        return EDITOR if self.narrow and not self.has_class("-pane") else self.pane

    def show(self, name: str, *, focus: bool = False) -> None:
        """Bring a pane, or the editor, into sight."""
        self.set_class(name != EDITOR, "-pane")
        if name != EDITOR:
            self.pane = name
            self.query_one("#panes", ContentSwitcher).current = f"pane-{name}"
        tab = f"tab-{name}" if self.narrow or name != EDITOR else f"tab-{self.pane}"
        tabs = self.query_one("#pane-tabs", Tabs)
        if tabs.active != tab:
            tabs.active = tab
        if focus:
            self.focus_on(name)

    def focus_on(self, name: str) -> None:
        """Put the focus into a pane: its first widget that takes one."""
        if name == EDITOR:
            self.editor.focus_text()
            return
        pane = self.panes[name]
        inside = [w for w in pane.walk_children(Widget) if w.focusable]
        target = pane if pane.can_focus else (inside[0] if inside else None)
        if target is not None:
            self.screen.set_focus(target)
        else:
            self.screen.set_focus(self.query_one("#pane-tabs", Tabs))

    @property
    def focused_pane(self) -> str:
        """Which pane has the focus, "" for none of them."""
        widget = self.screen.focused
        while widget is not None and widget is not self:
            if widget is self.editor:
                return EDITOR
            name = next((n for n, pane in self.panes.items() if pane is widget), "")
            if name:
                return name
            widget = widget.parent if isinstance(widget.parent, Widget) else None
        return ""

    @on(Tabs.TabActivated, "#pane-tabs")
    def _activated(self, event: Tabs.TabActivated) -> None:
        event.stop()
        if event.tabs.active != event.tab.id:
            return  # another tab has followed since: obeyed, the two would answer each other for ever
        name = str(event.tab.id).removeprefix("tab-")
        if name != self.shown and (name != EDITOR or self.narrow):
            self.show(name)
