"""The two lowest lines: what the session is doing, and at most seven keys."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widgets import Static

from kforge.ui.actions import FOOTER_KEYS, shown
from kforge.ui.progress import Progress
from kforge.ui.text import one_line, plain

Row = tuple[str, str, str]  # key, title, action


class StatusLine(Static):
    """One line of `Progress.text()`, cut where the terminal ends."""

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def show(self, progress: Progress, model: str) -> None:
        """The state of now."""
        text = one_line(progress.text(model))
        if text != self.shown:
            self.update(plain(text), layout=False)

    @property
    def shown(self) -> str:
        """What stands there."""
        return str(self.content)


class KeyBar(Static):
    """The keys of the pane that has the focus, then the app's, seven at most; a click presses one."""

    DEFAULT_CSS = """
    KeyBar { height: 1; padding: 0 1; background: $surface; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    OWN = 3  # keys of the focused pane that come before the app's

    def on_mount(self) -> None:
        """Follow the focus."""
        self.call_after_refresh(self.show)
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.show())

    def rows(self) -> list[Row]:
        """(key, title, action) in order."""
        own: list[Row] = []
        app: list[Row] = []
        offers = getattr(self.app, "offers", lambda _: True)
        for node, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and (node is not self.app or offers(binding.action)):
                (app if node is self.app else own).append((binding.key, binding.description, binding.action))
        order = {a: n for n, a in enumerate(self.app.footer_order())} if hasattr(self.app, "footer_order") else {}
        app.sort(key=lambda row: order.get(row[2], 99))
        own = own[: self.OWN]
        chosen = [*own, *app[: FOOTER_KEYS - len(own)]]
        if own and app and app[-1] not in chosen:  # the way out stays in sight
            chosen[-1] = app[-1]
        return chosen

    def show(self) -> None:
        """Draw the keys of now."""
        if not self.is_attached:
            return
        parts: list[Content] = []
        self._ends: list[tuple[int, str]] = []  # cell behind each part, its key
        for key, title, _ in self.rows():
            parts.append(Content.assemble((shown(key), "bold $text-accent"), " ", plain(title), "  "))
            self._ends.append((sum(part.cell_length for part in parts), key))
        self.update(Content("").join(parts), layout=False)

    def on_click(self, event: events.Click) -> None:
        """Press the key under the pointer."""
        at = event.get_content_offset(self)
        key = next((key for end, key in self._ends if at is not None and at.x < end), "")
        if key:
            self.app.simulate_key(key.partition(",")[0])
