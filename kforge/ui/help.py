"""F1: the keys of where the focus is, then the app's, then what can be typed into the steer input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Markdown, Static

from kforge.ui.actions import ACTIONS, shown
from kforge.ui.slash import SLASH

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

EDITOR = """\
# Editor

op.py, the candidate's module and its kernels in tabs. Numbers in the gutter are figures of the profile, a sign marks a
line that a gate or the compiler complains of; the line below the text says what it is. Saving judges again.
"""

STEER = """\
# Steer

Say what to do. **enter** says it to the agent now, **ctrl+t** when its present attempt is done. What waits stands above
the input: **enter** there edits it, **delete** drops it. A rule in it ("keep NaN semantics", "no fast-math", "must be
deterministic") stands as a chip from then on and every later attempt is checked against it; **delete** on the chip
removes it. **@file#10-40** attaches lines.
"""


def help_text(pane: str, words: str, keys: Mapping[str, str]) -> str:
    """Markdown for a pane: "editor", "steer" or the name of one on the right, whose own help is `words`."""
    first = STEER if pane == "steer" else words or EDITOR
    rows = []
    for action in ACTIONS.values():
        key = keys.get(action.id, action.key)
        if key:
            rows.append(f"| {shown(key)} | {action.title}: {action.help} |")
    commands = [
        f"| /{s.name}{' ' + s.argument.replace('[', '(').replace(']', ')') if s.argument else ''} | {s.help} |"
        for s in SLASH.values()
    ]
    parts = [
        first.rstrip(),
        "# Keys",
        "Escape twice stops what is in progress. Everything is in the palette too.",
        "| key | what |\n|---|---|\n" + "\n".join(rows),
        "# Steer input",
        "| command | what |\n|---|---|\n" + "\n".join(commands),
    ]
    return "\n\n".join(parts)


def _parser() -> MarkdownIt:
    """Without links made of words: `op.py` is no address in Paraguay."""
    from markdown_it import MarkdownIt

    return MarkdownIt("gfm-like", {"linkify": False})


class HelpScreen(ModalScreen[None]):
    """Shows `help_text`; any of escape, F1, q leaves."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 90%; max-width: 100; height: 90%; border: round $primary; background: $surface;
                                  padding: 0 1; }
    HelpScreen > Static { width: 90%; max-width: 100; height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss", "Back", priority=True)]

    def __init__(self, pane: str, words: str, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.text = help_text(pane, words, keys)

    def compose(self) -> ComposeResult:
        """The text, scrollable."""
        with VerticalScroll():
            yield Markdown(self.text, parser_factory=_parser, open_links=False)
        yield Static("escape: back")

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VerticalScroll).focus()
