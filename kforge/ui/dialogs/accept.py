"""The accept dialog: everything that is known of a candidate, and what would be written where, before it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from kforge.ui.panes import evidence as words
from kforge.ui.panes.glyphs import MUTED, Glyphs, glyphs
from kforge.ui.panes.rows import hanging
from kforge.ui.text import one_line, plain

T = TypeVar("T")

BOX = """
    align: center middle;
    & > .dialog { width: 90%; max-width: 104; height: auto; padding: 0 1;
                  border: round $primary; background: $surface; }
    & .dialog-body { height: auto; scrollbar-size-vertical: 1; }
    & Button:focus { text-style: bold underline !important; }
    & .dialog-buttons { height: 1; margin-top: 1; }
    & .dialog-buttons Button { margin-right: 2; }
    & .dialog-keys { width: 1fr; color: $text-muted; text-align: right; }
"""


class Dialog(ModalScreen[T]):
    """A box with a body that scrolls and a row of buttons below it, never higher than the terminal."""

    def on_resize(self, event: events.Resize) -> None:
        room = max(3, event.size.height - 7)  # the box, its title and its buttons stay
        self.query_one(".dialog-body").styles.max_height = room
        self.query_one(".dialog").styles.max_height = room + 5


class AcceptScreen(Dialog[bool]):
    """Returns whether to write. evidence: the core's answer to `evidence`: candidate, report, problem, warnings,
    verified, folder, files, domain (lines)."""

    DEFAULT_CSS = f"AcceptScreen {{ {BOX} }}"
    HELP = "# Accept\n\nWhat the judge found, what it did not test, and which files would be written where."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "cancel", "Keep as it is", id="accept.cancel"),
        Binding("a,y", "accept", "Accept", id="accept.accept"),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
    ]

    def __init__(self, evidence: Mapping[str, Any]) -> None:
        super().__init__()
        self.evidence = evidence
        self.allowed = bool(evidence.get("verified"))

    def compose(self) -> ComposeResult:
        digest = one_line(str(self.evidence.get("candidate") or ""))[:8]
        with Vertical(classes="dialog"):
            yield Static(Content.styled(f"Accept candidate {digest}?", "bold"))
            with VerticalScroll(classes="dialog-body", can_focus=False):
                yield Static(id="accept-evidence")
            with Horizontal(classes="dialog-buttons"):
                yield Button("Accept", id="accept-yes", variant="success", compact=True, disabled=not self.allowed)
                yield Button("Keep as it is", id="accept-no", compact=True)
                yield Static("a accept  escape back", classes="dialog-keys")

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        width = min(104, event.size.width * 9 // 10) - 6
        rows = [row for line in accept_text(self.evidence, glyphs()) for row in hanging(line, width)]
        self.query_one("#accept-evidence", Static).update(Content("\n").join(rows))

    def on_mount(self) -> None:
        self.query_one("#accept-yes" if self.allowed else "#accept-no", Button).focus()

    @on(Button.Pressed, "#accept-yes")
    def action_accept(self) -> None:
        if self.allowed:
            self.dismiss(True)

    @on(Button.Pressed, "#accept-no")
    def action_cancel(self) -> None:
        self.dismiss(False)

    def action_scroll(self, rows: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)


def accept_text(evidence: Mapping[str, Any], signs: Glyphs) -> Iterator[Content]:
    """In lines: what holds, what is written where, the evidence, what was not tested."""
    report = evidence.get("report") or {}
    problem = str(evidence.get("problem") or "")
    if report:
        yield words.headline(report)
        if error := words.error_text(report):
            yield plain(error)
    if problem:
        style = "$text-warning" if evidence.get("verified") else "$text-error"
        yield plain(one_line(problem, 400), style)
        if not evidence.get("verified"):
            yield Content.styled("It cannot be accepted as it is: F5 judges it.", "$text-error")
    for warning in [*(evidence.get("warnings") or ()), *(report.get("warnings") or ())][:4]:
        yield plain(f"warning: {one_line(str(warning), 300)}", "$text-warning")
    yield Content("")
    folder = str(evidence.get("folder") or "")
    yield Content.assemble(
        ("Written to ", "bold"), plain(one_line(folder, 400), "bold"), (" (op.py stays as it is):", "")
    )
    for name in evidence.get("files") or ():
        there = Path(folder, str(name)).exists()
        yield Content.assemble(
            f"{signs.arrow} ", plain(one_line(str(name), 200)),
            ("  replaces the one that is there; u takes it back" if there else "  new", MUTED),
        )  # fmt: skip
    if evidence.get("domain"):
        yield Content("")
        yield from (plain(one_line(str(text), 400)) for text in evidence["domain"])
    for lines in (words.times(report, {}), words.costs(report)):
        if lines:
            yield Content("")
            yield from lines
    rows = words.gates(report, signs)
    if rows:
        yield Content("")
        yield from rows
    untested = words.not_tested(report)
    if untested:
        yield Content("")
        yield Content.styled("Not tested", "bold")
        yield from (plain(f"{signs.dot} {text}") for text in untested)
