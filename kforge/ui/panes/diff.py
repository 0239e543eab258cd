"""The diff pane: hunks with findings and figures at their lines; accept, reject with a reason, split, undo, comment.

It shows the core's answer to `hunks` and says by messages what was decided; applying and judging are the core's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from kforge.agent.hunks import comment, refusal, refusals
from kforge.ui.panes.diff_model import ACCEPTED, PENDING, REJECTED, DiffModel
from kforge.ui.panes.diff_view import DiffView
from kforge.ui.text import one_line, plain


class DiffPane(Vertical):
    """A candidate beside its parent, what is accepted, or the reference."""

    DEFAULT_CSS = """
    DiffPane { height: 1fr; }
    DiffPane > .diff-bar {
        height: 1; padding: 0 1; color: $text-muted; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    DiffPane > DiffView { height: 1fr; }
    DiffPane > #diff-input { display: none; height: 3; }
    DiffPane.-asking > #diff-input { display: block; }
    """
    HELP = """\
# Diff

What the candidate changes, in hunks. Figures before and after stand beside their lines, findings below them.

- **j k** next and previous hunk, **a** accepts it, **r** rejects it with a reason, **s** splits it
- **A R** accept or reject all that is not decided; **u** takes the last decision back, then the last accept
- **enter** applies: what was accepted becomes a new candidate, which is judged before anything is written; the agent is
  told what was rejected
- **c** a comment on the hunk for the agent, **y** copies it
- **t** one column or two, **m** another figure, **[ ]** the hottest lines

Where hardly a line is the same (`op.py` against a kernel) lines that belong together are shown, and **a** takes all.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "hunk(1)", "Next hunk", show=False, id="diff.next"),
        Binding("k", "hunk(-1)", "Previous hunk", show=False, id="diff.previous"),
        Binding("a", "accept", "Accept", id="diff.accept"),
        Binding("r", "reject", "Reject", id="diff.reject"),
        Binding("u", "undo", "Undo", show=False, id="diff.undo"),
        Binding("s", "split", "Split", show=False, id="diff.split"),
        Binding("A", "accept_all", "Accept all", show=False, id="diff.accept_all"),
        Binding("R", "reject_all", "Reject all", show=False, id="diff.reject_all"),
        Binding("enter", "apply", "Apply", id="diff.apply"),
        Binding("c", "comment", "Comment", show=False, id="diff.comment"),
        Binding("t", "sides", "Split view", show=False, id="diff.sides"),
        Binding("m", "metric", "Next metric", show=False, id="diff.metric"),
        Binding("y", "copy", "Copy", show=False, id="diff.copy"),
        Binding("left_square_bracket", "hot(-1)", "Hotter line", show=False, id="diff.hotter"),
        Binding("right_square_bracket", "hot(1)", "Next hot line", show=False, id="diff.colder"),
        Binding("escape", "cancel", "Back", show=False, id="diff.cancel"),
    ]

    class Accepted(Message):
        """Take these hunks of `candidate` over `against`. whole: all of it, nothing has to be judged again.

        rejected: {"id", "reason"} of what was rejected.
        """

        def __init__(
            self,
            candidate: str,
            against: str,
            hunks: tuple[str, ...],
            rejected: tuple[dict[str, str], ...],
            whole: bool,
        ) -> None:
            self.candidate, self.against, self.hunks = candidate, against, hunks
            self.rejected, self.whole = rejected, whole
            super().__init__()

    class Rejected(Message):
        """A hunk was rejected; the model hears of it with `Accepted`. hunk "": all that was, so tell it `text` now."""

        def __init__(self, candidate: str, hunk: str, reason: str, text: str) -> None:
            self.candidate, self.hunk, self.reason, self.text = candidate, hunk, reason, text
            super().__init__()

    class Commented(Message):
        """Say this to the agent: `text` names the hunk, `words` are the developer's."""

        def __init__(self, candidate: str, hunk: str, words: str, text: str) -> None:
            self.candidate, self.hunk, self.words, self.text = candidate, hunk, words, text
            super().__init__()

    class UndoAsked(Message):
        """Nothing is left to take back here: undo the last accept."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = DiffView(id="diff-view")
        self._asked = ""  # what the input is for: reject, reject_all, comment
        self._said = ""

    def compose(self) -> ComposeResult:
        yield Static(id="diff-head", classes="diff-bar", markup=False)
        yield self.view
        yield Input(id="diff-input")
        yield Static(id="diff-foot", classes="diff-bar", markup=False)

    def on_mount(self) -> None:
        self._show_bars()

    def focus(self, scroll_visible: bool = True, from_app_focus: bool = False) -> DiffPane:
        """The lines have the cursor."""
        self.view.focus(scroll_visible)
        return self

    @property
    def model(self) -> DiffModel | None:
        """The comparison that is shown."""
        return self.view.model

    def show(self, reply: Mapping[str, Any]) -> None:
        """Show the core's answer to `hunks`."""
        self.view.model = model = DiffModel(reply)
        self.view.metric = model.metrics[0] if model.metrics else ""
        self.view.current = self.view.cursor = 0
        self._said = ""
        self._leave_input()
        self.view.settle()
        self.view.scroll_home(animate=False)
        self._show_bars()

    def clear(self) -> None:
        """Show nothing."""
        self.view.model = None
        self.view.settle()
        self._show_bars()

    def on_core_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """An accept or undo is said in the line below; the comparison itself comes by `show`."""
        if kind == "accepted":
            self._tell(f"accepted: written to {one_line(str(data.get('folder') or ''))}")
        elif kind == "undone":
            self._tell("the last accept was taken back")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape belongs to the app while nothing is asked here."""
        return self._asked != "" if action == "cancel" else True

    def action_hunk(self, step: int) -> None:
        model = self.model
        if model is None or not model.choices:
            self.view.action_move(step)
            return
        at = self.view.rows[self.view.cursor].hunk if self.view.cursor < len(self.view.rows) else None
        target = self.view.current + step if at is not None or step < 0 else self.view.current
        self.view.go_to_hunk(min(max(0, target), len(model.choices) - 1))

    def action_accept(self) -> None:
        model = self.model
        if model is None:
            return
        if not model.related:
            self.post_message(self.Accepted(model.candidate, model.against, (), (), whole=True))
        elif model.choices:
            self._decide(ACCEPTED)

    def action_reject(self) -> None:
        if self.model is not None and (self.model.choices or not self.model.related):
            self._ask("reject", "Why is it rejected? enter: reject, escape: back")

    def action_accept_all(self) -> None:
        model = self.model
        if model is not None and not model.related:
            self.action_accept()
        elif model is not None and model.choices:
            model.decide_all(ACCEPTED)
            self._renew()

    def action_reject_all(self) -> None:
        if self.model is not None and (self.model.choices or not self.model.related):
            self._ask("reject_all", "Why is all of it rejected? enter: reject, escape: back")

    def action_undo(self) -> None:
        model = self.model
        if model is not None and model.undo():
            self.view.current = min(self.view.current, max(0, len(model.choices) - 1))
            self._renew()
        else:
            self.post_message(self.UndoAsked())

    def action_split(self) -> None:
        model = self.model
        if model is None or not model.choices:
            return
        if model.split(self.view.current):
            self._renew()
        else:
            self._tell("this hunk cannot be split further")

    def action_apply(self) -> None:
        model = self.model
        if model is None:
            return
        if not model.related:
            self.action_accept()
        elif not model.accepted and model.rejected:
            text = refusals((c.hunk, c.reason) for c in model.choices if c.state == REJECTED)
            self.post_message(self.Rejected(model.candidate, "", "", text))
            self._tell("the agent is told what was rejected")
        elif not model.accepted:
            self._tell("nothing is accepted yet: a accepts a hunk, A all")
        else:
            whole = len(model.accepted) == len(model.choices)
            self.post_message(self.Accepted(model.candidate, model.against, model.accepted, model.rejected, whole))

    def action_comment(self) -> None:
        if self.model is not None:
            self._ask("comment", "Comment on this hunk for the agent; enter: send, escape: back")

    def action_sides(self) -> None:
        self.view.sides = not self.view.sides
        self.view.scroll_to(x=0, animate=False)
        self._renew()

    def action_metric(self) -> None:
        model = self.model
        if model is None or not model.metrics:
            self._tell("no figures: neither version was profiled (F9)")
            return
        names = [*model.metrics, ""]
        self.view.metric = names[(names.index(self.view.metric) + 1) % len(names)]
        self._renew()

    def action_copy(self) -> None:
        model = self.model
        if model is None:
            return
        if model.choices:
            text = model.choices[self.view.current].hunk.text()
        else:
            text = "\n".join(file.new_text or "" for file in model.files)
        self.app.copy_to_clipboard(text)

    def action_hot(self, step: int) -> None:
        hot = self.view.hot_rows()
        if not hot:
            self._tell("no figures: neither version was profiled (F9)")
            return
        at = hot.index(self.view.cursor) if self.view.cursor in hot else -1
        place = (at + step) % len(hot) if at >= 0 else 0 if step > 0 else len(hot) - 1
        self.view.move_cursor(hot[place], centre=True)
        self._tell(f"hot line {place + 1} of {len(hot)}")

    def action_cancel(self) -> None:
        self._leave_input()
        self.view.focus()

    @on(Input.Submitted, "#diff-input")
    def _answered(self, event: Input.Submitted) -> None:
        event.stop()
        model, asked, words = self.model, self._asked, one_line(event.value)
        self._leave_input()
        self.view.focus()
        if model is None:
            return
        if asked == "comment":
            if words:
                self._comment(model, words)
        elif not model.related:
            self.post_message(
                self.Rejected(model.candidate, "", words, f"The developer rejected the candidate: {words}")
            )
        elif asked == "reject":
            self._decide(REJECTED, words)
        else:
            model.decide_all(REJECTED, words)
            for choice in model.choices:
                if choice.state == REJECTED and choice.reason == words:
                    self._say_rejected(model, choice.hunk.id, words, refusal(choice.hunk, words))
            self._renew()

    def _comment(self, model: DiffModel, words: str) -> None:
        hunk = model.choices[self.view.current].hunk if model.choices else None
        text = comment(hunk, words) if hunk is not None else f"About candidate {model.candidate[:8]}: {words}"
        self._tell("the agent is told")
        self.post_message(self.Commented(model.candidate, hunk.id if hunk is not None else "", words, text))

    def _decide(self, state: str, reason: str = "") -> None:
        model = self.model
        assert model is not None
        index = self.view.current
        model.decide(index, state, reason)
        if state == REJECTED:
            hunk = model.choices[index].hunk
            self._say_rejected(model, hunk.id, reason, refusal(hunk, reason))
        self._said = ""
        self.view.settle()
        self.view.go_to_hunk(model.next_pending(index))
        self._show_bars()

    def _say_rejected(self, model: DiffModel, hunk: str, reason: str, text: str) -> None:
        self.post_message(self.Rejected(model.candidate, hunk, reason, text))

    def _ask(self, what: str, words: str) -> None:
        self._asked = what
        entry = self.query_one("#diff-input", Input)
        entry.value, entry.placeholder = "", words
        self.add_class("-asking")
        entry.focus()

    def _leave_input(self) -> None:
        self._asked = ""
        self.remove_class("-asking")

    def _tell(self, words: str) -> None:
        self._said = words
        self._show_bars()

    def _renew(self) -> None:
        self._said = ""
        self.view.settle()
        if self.model is not None and self.model.choices:
            self.view.go_to_hunk(self.view.current)
        self._show_bars()

    def _show_bars(self) -> None:
        if not self.is_mounted:
            return
        model = self.model
        head, foot = self.query_one("#diff-head", Static), self.query_one("#diff-foot", Static)
        if model is None:
            head.update(Content("no candidate to compare yet"))
            foot.update(plain(self._said))
            return
        over = model.against[:8] if model.against else model.reference.name
        words = f"{model.candidate[:8]} over {over}"
        words += f"  figures: {self.view.metric} (m)" if self.view.metric else ""
        head.update(plain(words), layout=False)
        foot.update(plain(self._said or self._standing(model)), layout=False)

    def _standing(self, model: DiffModel) -> str:
        if not model.related:
            return "a: accept the whole candidate   r: reject it"
        if not model.choices:
            return "the versions are equal"
        states = ", ".join(
            f"{model.count(s)} {w}" for s, w in ((ACCEPTED, ACCEPTED), (REJECTED, REJECTED), (PENDING, "left"))
        )
        words = f"{self.view.current + 1}/{len(model.choices)}: {states}"
        return words + ("  enter applies" if model.accepted else "  a accept  r reject")
