"""The steer bar: standing rules as chips, what waits to be said, the input, and a line for short notices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.timer import Timer
from textual.widgets import Input, Static

from kforge.errors import UsageError
from kforge.ui.slash import SLASH, parse
from kforge.ui.text import clean, one_line, plain

NOTICE_S = 6.0
LONGEST = 20_000  # characters of the input
LINE_END = "⏎"  # a pasted line end in the one line of the input
HISTORY = 200


@dataclass
class Waiting:
    """A steer that nobody has taken yet. id: the core's, negative while the core does not know it."""

    id: int
    text: str
    when: str


class Chip(Static, can_focus=True):
    """One standing rule; those of op.py cannot be removed here."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("delete,backspace,enter", "release", "Remove the rule")]
    DEFAULT_CSS = """
    Chip { width: auto; height: 1; padding: 0 1; margin: 0 1 0 0; background: $panel; }
    Chip:focus { background: $accent; color: $background; }
    """

    class Released(Message):
        """The rule shall go."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, rule: str, removable: bool) -> None:
        super().__init__(plain(f"{one_line(rule, 60)} ✕" if removable else one_line(rule, 60)))
        self.rule, self.removable = rule, removable

    def action_release(self) -> None:
        """Ask for the rule to go."""
        if self.removable:
            self.post_message(self.Released(self.rule))

    def on_click(self) -> None:
        """A click is enough."""
        self.action_release()


class WaitingLine(Static, can_focus=True):
    """One steer that waits: enter edits it, delete drops it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "edit", "Edit"),
        Binding("delete,backspace", "drop", "Drop"),
    ]
    DEFAULT_CSS = """
    WaitingLine { height: 1; padding: 0 1; color: $text-muted; }
    WaitingLine:focus { background: $panel; color: $text; }
    """

    class Chosen(Message):
        """The steer shall be edited or dropped."""

        def __init__(self, waiting: Waiting, what: str) -> None:
            super().__init__()
            self.waiting, self.what = waiting, what

    def __init__(self, waiting: Waiting) -> None:
        where = "queued" if waiting.when == "queued" else "to be read"
        super().__init__(plain(f"{where}: {one_line(waiting.text, 200)}"))
        self.waiting = waiting

    def action_edit(self) -> None:
        """Bring it back into the input."""
        self.post_message(self.Chosen(self.waiting, "edit"))

    def action_drop(self) -> None:
        """Take it back."""
        self.post_message(self.Chosen(self.waiting, "drop"))


class SteerInput(Input):
    """One line: words, or a slash command. What is being typed is never lost: the history keeps it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "queue", "Queue"),
        Binding("up", "history(-1)", "Earlier", show=False),
        Binding("down", "history(1)", "Later", show=False),
    ]

    def __init__(self) -> None:
        commands = [f"/{s.name}{' ' if s.argument else ''}" for s in SLASH.values()]
        super().__init__(
            id="steer",
            placeholder="say what to do (enter: now, ctrl+t: when it is done), or /help",
            suggester=SuggestFromList(commands),
            select_on_focus=False,
        )
        self._history: list[str] = []
        self._at = 0

    def remember(self, text: str) -> None:
        """Into the history."""
        if text.strip() and (not self._history or self._history[-1] != text):
            self._history = [*self._history, text][-HISTORY:]
        self._at = len(self._history)

    async def _on_key(self, event: events.Key) -> None:
        """Enter is for this line, whatever has the focus by the time that a binding would be looked for."""
        bar = self.parent
        if event.key == "enter" and isinstance(bar, SteerBar):
            event.stop()
            event.prevent_default()
            bar.submit("now")

    def _on_paste(self, event: events.Paste) -> None:
        """Every line of it: Textual keeps the first one only. A line end is shown as a sign until it is said."""
        event.stop()
        event.prevent_default()
        text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n").expandtabs(4)
        if len(self.value) + len(text) > LONGEST:
            bar = self.parent
            if isinstance(bar, SteerBar):
                words = f"{len(text):,} characters are too many to say: save them in a file and name it, @file#1-200"
                bar.notice(words, error=True)
            return
        self.replace(text.replace("\n", LINE_END), *self.selection)

    def action_history(self, step: int) -> None:
        """An earlier or later line; what was typed meanwhile is kept as the newest."""
        if self._at == len(self._history) and self.value.strip():
            self.remember(self.value)
            self._at = len(self._history) - 1
        self._at = max(0, min(len(self._history), self._at + step))
        self.value = self._history[self._at] if self._at < len(self._history) else ""
        self.cursor_position = len(self.value)

    def action_queue(self) -> None:
        """Hand the line over to be said when the present attempt is done."""
        bar = self.parent
        if isinstance(bar, SteerBar):
            bar.submit("queued")


class SteerBar(Vertical):
    """Everything of steering. It holds what waits until the core has taken it."""

    DEFAULT_CSS = """
    SteerBar { height: auto; }
    SteerBar #chips { height: 1; display: none; padding: 0 1; }
    SteerBar #chips.-some { display: block; }
    SteerBar #waiting { height: auto; max-height: 4; overflow-y: auto; }
    SteerBar #notice { height: 1; padding: 0 1; color: $text-muted; }
    SteerBar #notice.-error { color: $text-error; }
    SteerBar #steer { height: 1; border: none; padding: 0 1; background: $surface; }
    SteerBar #steer:focus { background: $panel; }
    """

    class Said(Message):
        """Words for the agent. id: of the waiting steer that they replace, None for new ones."""

        def __init__(self, text: str, when: str, id: int | None) -> None:
            super().__init__()
            self.text, self.when, self.id = text, when, id

    class Dropped(Message):
        """A waiting steer is taken back."""

        def __init__(self, id: int) -> None:
            super().__init__()
            self.id = id

    class Commanded(Message):
        """A slash command."""

        def __init__(self, name: str, argument: str) -> None:
            super().__init__()
            self.name, self.argument = name, argument

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._editing: Waiting | None = None
        self._timer: Timer | None = None
        self._own = 0
        self._standing = ""
        self.waiting: list[Waiting] = []
        self.rules: dict[str, str] = {}  # rule: origin

    def compose(self) -> ComposeResult:
        """From the top: rules, what waits, a notice, the input."""
        yield Horizontal(id="chips")
        yield Vertical(id="waiting")
        yield Static(id="notice")
        yield SteerInput()

    # notices

    def notice(self, text: str, *, error: bool = False, stay: bool = False) -> None:
        """One line, gone after a while. stay: it comes back after others, until another one stays (or "" clears it)."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if stay:
            self._standing = text
        line = self.query_one("#notice", Static)
        line.set_class(error, "-error")
        line.update(plain(one_line(text, 400)), layout=False)
        if not stay:
            self._timer = self.set_timer(NOTICE_S * (2 if error else 1), lambda: self.notice(self._standing, stay=True))

    def stand(self, text: str) -> None:
        """What comes back after the notice that is shown now."""
        self._standing = text

    @property
    def urgent(self) -> bool:
        """Whether the notice says what went wrong, or asks something, and its time is not over."""
        return self._timer is not None and self.query_one("#notice", Static).has_class("-error")

    @property
    def noticed(self) -> str:
        """The text of the notice."""
        return str(self.query_one("#notice", Static).content)

    # what is said

    def submit(self, when: str) -> None:
        """Hand over what is typed; an unknown command stays in the input."""
        line = self.query_one(SteerInput)
        text = line.value.replace(LINE_END, "\n").strip()
        if not text:
            return
        try:
            command = parse(text)
        except UsageError as error:
            self.notice(f"{error.message} ({error.hint})", error=True)
            return
        line.remember(text.replace("\n", LINE_END))
        line.value = ""
        editing, self._editing = self._editing, None
        if command is not None:
            self.post_message(self.Commanded(*command))
        else:
            self.post_message(self.Said(text, when, editing.id if editing else None))

    def own_id(self) -> int:
        """A number for a steer that the core does not know yet."""
        self._own -= 1
        return self._own

    @on(WaitingLine.Chosen)
    def _chosen(self, event: WaitingLine.Chosen) -> None:
        event.stop()
        if event.what == "drop":
            self.post_message(self.Dropped(event.waiting.id))
            return
        line = self.query_one(SteerInput)
        line.remember(line.value)
        self._editing = event.waiting
        line.value = event.waiting.text.replace("\n", LINE_END)
        line.cursor_position = len(line.value)
        self.screen.set_focus(line)
        self.notice("editing what waits: enter puts it back")

    # what is known

    def put(self, waiting: Waiting) -> None:
        """A steer waits, or waits with other words."""
        for n, known in enumerate(self.waiting):
            if known.id == waiting.id:
                self.waiting[n] = waiting
                break
        else:
            self.waiting.append(waiting)
        self._show_waiting()

    def remove_waiting(self, id: int) -> None:
        """It was taken or dropped."""
        self.waiting = [w for w in self.waiting if w.id != id]
        if self._editing is not None and self._editing.id == id:
            self._editing = None  # the words in the input become a new steer
        self._show_waiting()

    def disown(self) -> None:
        """The core that knew them is gone: what waits is ours again."""
        for waiting in self.waiting:
            if waiting.id > 0:
                waiting.id = self.own_id()

    def set_rules(self, rules: Iterable[tuple[str, str]]) -> None:
        """The standing rules with their origins."""
        self.rules = dict(rules)
        self._show_rules()

    def rule(self, name: str, origin: str, *, added: bool) -> None:
        """One rule came or went; a limit takes the place of an earlier one of its name."""
        base = name.partition("=")[0]
        self.rules = {r: o for r, o in self.rules.items() if r.partition("=")[0] != base}
        if added:
            self.rules[name] = origin
        self._show_rules()

    @on(events.Mount)
    def _show(self) -> None:
        self._show_rules()
        self._show_waiting()

    def _show_rules(self) -> None:
        place = self.query_one("#chips", Horizontal)
        place.remove_children()
        place.set_class(bool(self.rules), "-some")
        if self.rules:
            place.mount(*(Chip(rule, origin != "op.py") for rule, origin in self.rules.items()))

    def _show_waiting(self) -> None:
        place = self.query_one("#waiting", Vertical)
        place.remove_children()
        if self.waiting:
            place.mount(*(WaitingLine(waiting) for waiting in self.waiting))
