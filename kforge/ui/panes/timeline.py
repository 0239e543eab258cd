"""The timeline: every attempt as one line that grows while it runs, with what model, tools and developer said between.

It draws what is in sight, whatever the number of entries; the entries themselves are in kforge/ui/panes/entries.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from kforge.ui.leader import Leader
from kforge.ui.panes.entries import FILTERS, Answer, Attempt, Entry, Steering, kept
from kforge.ui.panes.entry_list import EntryList
from kforge.ui.panes.glyphs import MUTED
from kforge.ui.panes.sentences import SENTENCES
from kforge.ui.text import one_line


class TimelinePane(Vertical):
    """Everything that happens, as it happens."""

    DEFAULT_CSS = """
    TimelinePane { height: 1fr; }
    TimelinePane > #timeline-head {
        height: 1; padding: 0 1; color: $text-muted; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    TimelinePane > EntryList { height: 1fr; }
    """
    HELP = """\
# Timeline

Every attempt is one line: its number, candidate, state, gates, time and idea. It grows while the attempt runs.

- **enter** opens a line: compiler output, failing input, findings, the model's whole text
- **f** shows only attempts, failures, the model, tools or steers; again for the next
- **d** the attempt's diff, **p** its profile, **y** copies the entry
- **end** follows what is new
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter", "Filter", id="timeline.filter"),
        Binding("d", "diff", "Diff", id="timeline.diff"),
        Binding("p", "profile", "Profile", show=False, id="timeline.profile"),
        Binding("y", "copy", "Copy", show=False, id="timeline.copy"),
    ]

    class DiffAsked(Message):
        """Show the diff of a candidate."""

        def __init__(self, candidate: str) -> None:
            self.candidate = candidate
            super().__init__()

    class ProfileAsked(DiffAsked):
        """Show the profile of a candidate."""

    class Copied(Message):
        """A text was put into the clipboard of the terminal; `what` says which in words."""

        def __init__(self, text: str, what: str) -> None:
            self.text, self.what = text, what
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.list = EntryList(id="timeline-entries")
        self._attempts: dict[str, Attempt] = {}
        self._by_node: dict[Any, Attempt] = {}  # by the number that the present run gave
        self._leader = Leader()
        self._starred: Attempt | None = None
        self._facts: dict[str, str] = {}  # of the task, as said last
        self._answers: dict[str, Answer] = {}
        self._steers: dict[Any, Steering] = {}
        self._counts = {"attempts": 0, "failures": 0}
        self._handlers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "proposed": self._proposed, "building": self._building, "gate": self._gate, "case": self._case,
            "evaluated": self._evaluated, "node": self._node, "profiled": self._profiled,
            "tuned": self._tuned, "model_started": self._model_started, "model_text": self._model_text,
            "model_call": self._model_call, "tool_call": self._tool_call, "steer": self._steer,
            "constraint": self._constraint, "error": self._error,
        }  # fmt: skip

    def compose(self) -> ComposeResult:
        yield Static(id="timeline-head", markup=False)
        yield self.list

    def on_mount(self) -> None:
        self._show_head()

    def focus(self, scroll_visible: bool = True, from_app_focus: bool = False) -> TimelinePane:
        """The list has the cursor."""
        self.list.focus(scroll_visible)
        return self

    def on_core_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event of the core; kinds that say nothing here change nothing."""
        if kind == "run_started":
            self._by_node.clear()
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(data)
        elif kind in SENTENCES:
            if kind in ("stopped", "run_finished"):
                self.end_attempts()
            self._say(kind, SENTENCES[kind](data))
        if self._leader.apply(kind, data):
            self._star()

    def clear(self) -> None:
        """Forget everything: another session is shown."""
        for known in (self._attempts, self._answers, self._steers):
            known.clear()
        self._counts = {"attempts": 0, "failures": 0}
        self._by_node.clear()
        self._leader, self._starred = Leader(), None
        self._facts.clear()
        self.list.empty()
        self._show_head()

    def set_filter(self, name: str) -> None:
        """Show only what a filter of entries.FILTERS lets through."""
        self.list.choose(name)
        self.list.settle()
        self._show_head()

    def attempt(self, candidate: str) -> Attempt | None:
        """The entry of a candidate."""
        return self._attempts.get(candidate)

    def action_filter(self) -> None:
        names = list(FILTERS)
        self.set_filter(names[(names.index(self.list.filter) + 1) % len(names)])

    def action_diff(self) -> None:
        if self.list.selected is not None and self.list.selected.candidate:
            self.post_message(self.DiffAsked(self.list.selected.candidate))

    def action_profile(self) -> None:
        if self.list.selected is not None and self.list.selected.candidate:
            self.post_message(self.ProfileAsked(self.list.selected.candidate))

    def action_copy(self) -> None:
        entry = self.list.selected
        if entry is None:
            return
        signs = self.list.signs
        text = "\n".join([entry.title(10_000, signs).plain, *(part.plain for part in entry.details(signs))])
        self.app.copy_to_clipboard(text)
        self.post_message(self.Copied(text, "the entry"))

    def _show_head(self) -> None:
        if not self.is_mounted:
            return
        attempts, failures = self._counts["attempts"], self._counts["failures"]
        words = f"{attempts} attempt{'' if attempts == 1 else 's'}"
        words += f", {failures} failed" if failures else ""
        if self.list.filter != "all":
            words += f"  filter: {self.list.filter} (f: next)"
        self.query_one("#timeline-head", Static).update(Content(words), layout=False)

    def _say(self, kind: str, entry: Entry | None) -> None:
        if entry is None:
            return
        if entry.kind == "task":  # a run says again what opening the file has said
            if self._facts.get(kind) == entry.words:
                return
            self._facts[kind] = entry.words
        entry.kind = entry.kind or kind
        self.list.add(entry)

    def _of(self, data: Mapping[str, Any]) -> Attempt | None:
        return self._attempts.get(str(data.get("candidate") or ""))

    def _proposed(self, data: Mapping[str, Any]) -> None:
        digest = str(data["candidate"])
        if digest in self._attempts:
            self._by_node[data.get("node")] = self._attempts[digest]
            return
        fields = ("idea", "proposer", "direction", "expected_gain")
        known = {name: kept(value) if isinstance(value, str) else value for name in fields if (value := data.get(name))}
        above = self._by_node.get(data.get("parent_node"))
        attempt = Attempt(
            digest=digest, number=len(self._attempts) + 1, parent=above.number if above else 0, data=known
        )
        self._attempts[digest] = attempt
        self._by_node[data.get("node")] = attempt
        self._counts["attempts"] += 1
        self.list.add(attempt)
        self._show_head()

    def _building(self, data: Mapping[str, Any]) -> None:
        self._stage(data, "building")

    def _stage(self, data: Mapping[str, Any], stage: str) -> None:
        attempt = self._of(data)
        if attempt is not None:
            attempt.stage = stage
            self.list.changed(attempt)

    def _gate(self, data: Mapping[str, Any]) -> None:
        attempt = self._of(data)
        if attempt is None:
            return
        if data["name"] == "static":  # a further evaluation begins
            attempt.gates, attempt.cases, attempt.wrong_cases = {}, 0, []
        attempt.gate(data)
        attempt.stage = {
            "static": "building",
            "build": "correctness",
            "correctness": "honesty",
            "honesty": "memory",
        }.get(str(data["name"]), "timing")
        self.list.changed(attempt)

    def end_attempts(self) -> None:
        """What was under way has no verdict and gets none."""
        for attempt in self._attempts.values():
            if attempt.stage:
                attempt.stage, attempt.status = "", attempt.status or "stopped"
                self.list.changed(attempt)

    def _case(self, data: Mapping[str, Any]) -> None:
        attempt = self._of(data)
        if attempt is None:
            return
        attempt.cases += 1
        attempt.stage = "correctness"
        if not data["passed"] and len(attempt.wrong_cases) < 3:
            attempt.wrong_cases.append(kept(str(data["label"])))
        self.list.changed(attempt)

    def _evaluated(self, data: Mapping[str, Any]) -> None:
        attempt = self._of(data)
        if attempt is None:  # a user's own candidate is judged without a proposal
            self._proposed({"candidate": data["candidate"], "proposer": "user", "node": data.get("node")})
            attempt = self._attempts[str(data["candidate"])]
        failed_before = attempt.failed
        attempt.judge(data)
        self._counts["failures"] += attempt.failed - failed_before
        self.list.changed(attempt)
        self._show_head()

    def _star(self) -> None:
        before, self._starred = self._starred, self._attempts.get(self._leader.digest)
        for attempt in (before, self._starred):
            if attempt is not None:
                attempt.best = attempt is self._starred
                self.list.changed(attempt)

    def _node(self, data: Mapping[str, Any]) -> None:
        attempt = self._by_node.get(data["node"])
        pruned = kept(str(data.get("pruned") or ""))
        if attempt is not None and attempt.pruned != pruned:
            attempt.pruned = pruned
            self.list.changed(attempt)

    def _profiled(self, data: Mapping[str, Any]) -> None:
        attempt = self._of(data)
        if attempt is None:
            return
        found = (data.get("profile") or {}).get("findings") or ()
        attempt.findings = [
            kept(f"{f.get('title', '')}: {'; '.join(f.get('evidence') or ())}. {'; '.join(f.get('advice') or ())}")
            for f in found[:3]
        ]
        self.list.changed(attempt)

    def _tuned(self, data: Mapping[str, Any]) -> None:
        rows = len(data.get("table") or ())
        words = (
            f"tuned {str(data.get('parent') or '')[:8]} over {rows} configurations: {str(data.get('candidate'))[:8]}"
        )
        self.list.add(Entry("attempt", words))

    def _model_started(self, data: Mapping[str, Any]) -> None:
        answer = Answer(call=str(data["call"]), role=str(data.get("role") or ""), model=str(data.get("model") or ""))
        self._answers[answer.call] = answer
        self.list.add(answer)

    def _model_text(self, data: Mapping[str, Any]) -> None:
        call = str(data["call"])
        if call not in self._answers:
            self._model_started({"call": call})
        self._answers[call].grow(str(data["text"]))
        self.list.changed(self._answers[call])

    def _model_call(self, data: Mapping[str, Any]) -> None:
        call = str(data["call"])
        if call not in self._answers:  # a replayed log: the pieces are not in it
            self._model_started(data)
        answer = self._answers.pop(call)
        message = data.get("message")
        said = message.get("content") if isinstance(message, Mapping) else message
        if isinstance(said, str) and said:
            answer.body = kept(said)
        answer.running = False
        tokens = [f"{data[k]} {w}" for k, w in (("tokens_in", "in"), ("tokens_out", "out")) if data.get(k)]
        money = [f"${data['usd']:.4f}"] if data.get("usd") else []
        answer.tokens = ", ".join([*tokens, *money])
        answer.failed = data.get("finish") in ("error", "length")
        self.list.changed(answer)

    def _tool_call(self, data: Mapping[str, Any]) -> None:
        arguments = data.get("arguments")
        shown = arguments if isinstance(arguments, str) else _arguments(arguments)
        seconds = f" {data['seconds']:.1f} s" if data.get("seconds") else ""
        result = str(data.get("result") or "")
        words = f"{data['tool']}({one_line(shown, 80)}){seconds}  {one_line(result[:200], 120)}"
        body = kept(f"{shown}\n\n{result}" if shown else result)
        self.list.add(Entry("tool", words, MUTED, body, failed=bool(data.get("error"))))

    def _steer(self, data: Mapping[str, Any]) -> None:
        said = data.get("steer", data)
        number = said.get("id")
        known = self._steers.get(number)
        if known is None:
            text = str(said.get("text") or "")
            known = self._steers[number] = Steering(words=text, body=kept(text) if len(text) > 60 else "")
            known.when, known.state = str(said.get("when") or "now"), str(said.get("state") or "received")
            self.list.add(known)
            return
        known.state = str(said.get("state") or known.state)
        known.words = str(said.get("text") or known.words)
        self.list.changed(known)

    def _constraint(self, data: Mapping[str, Any]) -> None:
        origin = f" ({data['origin']})" if data.get("origin") else ""
        self.list.add(Entry("constraint", f"constraint {data['action']}: {data['name']}{origin}", "$text-warning"))

    def _error(self, data: Mapping[str, Any]) -> None:
        hint = f"\n{data['hint']}" if data.get("hint") else ""
        text = str(data["message"])
        self.list.add(Entry("error", text, "$text-error", kept(f"{text}{hint}"), failed=True))


def _arguments(arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        return "" if arguments is None else str(arguments)
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
