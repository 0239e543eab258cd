"""The settings screen: [ui] and [keys] of kforge.toml, each changed in its own line and written at once."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Select, Static, Switch

from kforge import config
from kforge.errors import UsageError
from kforge.ui import settings as stored
from kforge.ui.actions import ACTIONS
from kforge.ui.settings import THEMES, Settings
from kforge.ui.text import one_line, plain

WORDS = {
    "vim": "vim motions in the editor",
    "reverify": "judge again what was saved or changed on disk",
}


class SettingsScreen(ModalScreen[Settings | None]):
    """Returns the settings in force when it is left; what was changed is in kforge.toml by then."""

    DEFAULT_CSS = """
    SettingsScreen { align: center middle; }
    SettingsScreen > VerticalScroll { width: 90%; max-width: 90; height: 90%; border: round $primary;
                                      background: $surface; padding: 0 1; }
    SettingsScreen Horizontal { height: auto; }
    SettingsScreen .words { width: 1fr; height: auto; }
    SettingsScreen Input { width: 24; height: 1; border: none; }
    SettingsScreen Select { width: 24; }
    SettingsScreen Switch { border: none; height: 1; }
    SettingsScreen #said { height: auto; color: $text-muted; }
    SettingsScreen #said.-error { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f12", "leave", "Back", priority=True)]

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.path = settings.path or config.find_file(Path.cwd()) or Path.cwd() / config.FILE_NAME

    def compose(self) -> ComposeResult:
        """A line for each setting, a line for each key."""
        with VerticalScroll():
            yield Static(plain(f"Settings in {self.path}", "bold"))
            yield Static(plain("escape: back. Keys hold from the next start.", "$text-muted"), id="said")
            with Horizontal():
                yield Static("theme", classes="words")
                yield Select(
                    [(name, name) for name in THEMES], value=self.settings.theme, allow_blank=False, id="ui-theme"
                )
            for name, words in WORDS.items():
                with Horizontal():
                    yield Static(words, classes="words")
                    yield Switch(bool(getattr(self.settings, name)), id=f"ui-{name}", animate=False)
            yield Static(plain("Keys (enter writes one; empty: none)", "bold"))
            for action in ACTIONS.values():
                with Horizontal():
                    yield Static(plain(f"{action.title}: {action.help}"), classes="words")
                    value = self.settings.keys.get(action.id, action.key)
                    yield Input(value, id=f"key-{action.id}", compact=True)
            yield Button("Back", id="back", compact=True)

    def on_mount(self) -> None:
        """The first setting has the keys."""
        self.query_one("#ui-theme").focus()

    @on(Select.Changed, "#ui-theme")
    def _theme(self, event: Select.Changed) -> None:
        if event.value != self.settings.theme:
            self._write("ui", "theme", str(event.value))

    @on(Switch.Changed)
    def _switch(self, event: Switch.Changed) -> None:
        name = str(event.switch.id).removeprefix("ui-")
        if event.value != getattr(self.settings, name):
            self._write("ui", name, event.value)

    @on(Input.Submitted)
    def _key(self, event: Input.Submitted) -> None:
        name, key = str(event.input.id).removeprefix("key-"), event.value.strip().lower()
        self._write("keys", name, None if key == ACTIONS[name].key else key)

    def _write(self, table: str, name: str, value: str | bool | None) -> None:
        try:
            stored.store(self.path, table, name, value)
            self.settings = stored.load(self.path.parent)
        except UsageError as error:
            self._say(f"{error.message} ({error.hint})", error=True)
            return
        self._say(f"written: {name}")

    def _say(self, text: str, *, error: bool = False) -> None:
        said = self.query_one("#said", Static)
        said.set_class(error, "-error")
        said.update(plain(one_line(text, 400)))

    @on(Button.Pressed, "#back")
    def action_leave(self) -> None:
        """With what is in force now."""
        self.dismiss(self.settings)

    def on_key(self, event: events.Key) -> None:
        """Up and down move between settings."""
        if event.key in ("up", "down") and not isinstance(self.focused, Select):
            event.stop()
            self.focus_next() if event.key == "down" else self.focus_previous()
