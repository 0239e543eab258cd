"""The profile pane: where the time goes and what the floor is, for one candidate at a time.

It shows what the events `evaluated`, `profiled`, `baseline_timed` and `floor` say; what is missing is named.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from kforge.ui.panes import evidence
from kforge.ui.panes.entries import milliseconds
from kforge.ui.panes.glyphs import MUTED, glyphs
from kforge.ui.panes.plot import read_roof, roofline
from kforge.ui.panes.rows import Rows, fitted, hanging
from kforge.ui.text import one_line, plain

KEPT = 60  # candidates whose evidence is at hand; older ones are in the log
_LINES = ("lines", "for_model")  # of a profile: big, and shown by the gutter and the diff


class ProfileView(Rows):
    """The blocks, wrapped to the pane."""

    DEFAULT_CSS = "ProfileView > .profile--title { background: $panel; text-style: bold; }"
    COMPONENT_CLASSES: ClassVar[set[str]] = {"profile--title"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "Down", show=False, id="profile.down"),
        Binding("k", "move(-1)", "Up", show=False, id="profile.up"),
    ]
    has_cursor = False

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.signs = glyphs()
        self.candidate = ""
        self.report: Mapping[str, Any] = {}
        self.profile: Mapping[str, Any] = {}
        self.baselines: dict[str, float] = {}
        self.floor: Mapping[str, Any] = {}
        self.facts: dict[str, Any] = {}  # what was found out of op.py
        self.drawn: list[tuple[Content, str]] = []  # with their component class

    @property
    def count(self) -> int:
        return len(self.drawn)

    def row(self, index: int) -> Content:
        return self.drawn[index][0]

    def row_class(self, index: int) -> str:
        return self.drawn[index][1]

    def rebuild(self, width: int) -> None:
        self.drawn = []
        for title, rows, wrap in self._blocks(width - 1):
            if not rows:
                continue
            if title:
                self.drawn.append((Content(f" {title}"), "profile--title"))
            for row in rows:
                lines = hanging(row, width - 1) if wrap else [fitted(row, width - 1, self.signs.ellipsis)]
                self.drawn += [(Content(" ") + line, "") for line in lines]

    def _blocks(self, width: int) -> Iterator[tuple[str, Sequence[Content], bool]]:
        """(title, rows, whether they are wrapped)."""
        report, profile = self.report, self.profile
        if not report and not profile and not self.floor and not self.baselines and not self.facts:
            yield (
                "",
                [Content.styled("Nothing is known yet: F2 looks for a candidate, F5 judges this one.", MUTED)],
                True,
            )
            return
        if report:
            words = [evidence.headline(report)]
            words += [plain(text)] if (text := evidence.error_text(report)) else []
            yield "", words, True
        yield "Task", list(evidence.task(self.facts)), True
        yield "Room", list(self._room()), True
        if profile:
            yield "Findings", list(evidence.findings(profile)), True
        roof = read_roof(profile.get("roof"))
        if roof is not None:
            yield "Roofline", roofline(roof, width, 12 if width > 60 else 8, self.signs), False
        yield "Times", evidence.times(report, self.baselines), False
        if report and not report.get("times_ms"):
            target = str(report.get("target") or "")
            yield (
                "",
                [Content.styled(f"untimed: {target or 'this machine'} has no speed; a GPU is needed", "$text-warning")],
                True,
            )
        yield "Memory and energy", evidence.costs(report), False
        yield "Gates and detectors", evidence.gates(report, self.signs), False
        yield "Kernels", evidence.kernels(profile) or evidence.kernels(report), False
        if report:
            yield "Not tested", [plain(f"{self.signs.dot} {text}") for text in evidence.not_tested(report)], True
        yield "Missing", evidence.missing(profile, self.signs), True
        if not report and not profile:
            yield "", [Content.styled("F2 looks for a candidate, F5 judges the one that is open.", MUTED)], True
        if report and not profile:
            yield "", [Content.styled("Not profiled yet: p profiles it.", MUTED)], True

    def _room(self) -> Iterator[Content]:
        stage = self.profile.get("roofline") or {}
        judged = self.report.get("roofline") or {}
        floor_ms, bound, source = (
            stage.get(name) or self.floor.get(name) or judged.get(name) for name in ("floor_ms", "bound", "source")
        )
        if floor_ms:
            limits = f", {stage['ceilings']}" if stage.get("ceilings") else ""
            where = f" ({source}{limits})" if source else ""
            yield plain(one_line(f"{bound} bound, floor {milliseconds(float(floor_ms))}{where}", 300))
            if bound == "latency" and stage.get("launch_ms"):
                yield plain(f"one launch takes longer: {milliseconds(float(stage['launch_ms']))}")
        elif self.facts and not self.profile:
            yield plain("floor unknown: it is a GPU's bandwidth that makes one", "$text-warning")
        if stage.get("headroom_over_launch") is not None:
            over = f"{stage['headroom_over_launch']:.2f}x"
            yield Content.assemble("the fastest baseline takes ", (over, "bold"), " one launch")
        elif stage.get("headroom") is not None:
            yield Content.assemble("the fastest baseline takes ", (f"{stage['headroom']:.2f}x", "bold"), " the floor")
        elif stage.get("headroom_reason"):
            yield plain(f"headroom unknown: {one_line(str(stage['headroom_reason']), 200)}", "$text-warning")
        if stage.get("no_room") or self.floor.get("no_room") or self.report.get("no_room"):
            yield Content.styled("no room: keep PyTorch", "bold $text-success")
        for note in list(stage.get("notes") or ())[:3]:
            yield plain(one_line(str(note), 300), MUTED)


class ProfilePane(Vertical):
    """Everything that was measured or could not be."""

    DEFAULT_CSS = """
    ProfilePane { height: 1fr; }
    ProfilePane > #profile-head {
        height: 1; padding: 0 1; color: $text-muted; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    ProfilePane > ProfileView { height: 1fr; }
    """
    HELP = """\
# Profile

Where the time goes and what the floor is: findings with what to do, the roofline, times with their intervals, memory
and energy, gates and detectors, and what was not tested or is missing on this machine.

- **p** profiles the candidate that is shown
- **left right** the candidate before and after
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "profile", "Profile", id="profile.profile"),
        Binding("left", "other(-1)", "Before", show=False, id="profile.before"),
        Binding("right", "other(1)", "After", show=False, id="profile.after"),
    ]

    class ProfileAsked(Message):
        """Profile a candidate now."""

        def __init__(self, candidate: str) -> None:
            self.candidate = candidate
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = ProfileView(id="profile-view")
        self._known: OrderedDict[str, dict[str, Mapping[str, Any]]] = OrderedDict()
        self._chosen = False  # by the user: a newer candidate does not push it away

    def compose(self) -> ComposeResult:
        yield Static(id="profile-head", markup=False)
        yield self.view

    def on_mount(self) -> None:
        self._show_head()

    def focus(self, scroll_visible: bool = True, from_app_focus: bool = False) -> ProfilePane:
        """The text has the focus."""
        self.view.focus(scroll_visible)
        return self

    @property
    def candidate(self) -> str:
        """Digest of the candidate that is shown, "" before there is one."""
        return self.view.candidate

    def on_core_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event of the core; kinds that are no business of the profile change nothing."""
        if kind == "run_started":
            self._chosen = False
        elif kind == "task_loaded":
            self.view.baselines, self.view.floor = {}, {}
        elif kind in ("task_inspected", "captured"):
            self.view.facts |= data
        elif kind == "baseline_timed":
            self.view.baselines[str(data.get("name"))] = float(data.get("ms") or 0.0)
        elif kind == "floor":
            self.view.floor = dict(data)
        elif kind == "evaluated" and data.get("report"):
            self._learn(str(data["candidate"]), "report", data["report"])
        elif kind == "profiled" and data.get("profile"):
            profile = {k: v for k, v in data["profile"].items() if k not in _LINES}
            self._learn(str(data["candidate"]), "profile", profile)
        else:
            return
        self.view.renew()

    def show(self, candidate: str, report: Mapping[str, Any] | None = None) -> None:
        """Show this candidate until another is chosen; `report` where no event brought it."""
        if report is not None:
            self._learn(candidate, "report", report)
        self._chosen = True
        self._choose(candidate)

    def clear(self) -> None:
        """Forget everything: another session is shown."""
        self._known.clear()
        self._chosen = False
        self.view.baselines, self.view.floor, self.view.facts = {}, {}, {}
        self._choose("")

    def action_profile(self) -> None:
        if self.candidate:
            self.post_message(self.ProfileAsked(self.candidate))

    def action_other(self, step: int) -> None:
        order = list(self._known)
        if self.candidate in order:
            place = min(max(0, order.index(self.candidate) + step), len(order) - 1)
            self._chosen = place < len(order) - 1
            self._choose(order[place])

    def _learn(self, candidate: str, what: str, data: Mapping[str, Any]) -> None:
        new = candidate not in self._known
        self._known.setdefault(candidate, {})[what] = data
        if len(self._known) > KEPT:
            self._known.pop(next(name for name in self._known if name != self.candidate))
        shown = self._known.get(self.candidate, {}).get("report", {})
        better = data.get("status") == "verified" or shown.get("status") != "verified"
        if candidate == self.candidate or what == "profile" or (new and better and not self._chosen):
            self._choose(candidate)

    def _choose(self, candidate: str) -> None:
        view, known = self.view, self._known.get(candidate, {})
        if candidate != view.candidate:
            view.scroll_home(animate=False)
        view.candidate, view.report, view.profile = candidate, known.get("report", {}), known.get("profile", {})
        view.renew()
        self._show_head()

    def _show_head(self) -> None:
        if not self.is_mounted:
            return
        words = "no candidate yet"
        if self.candidate:
            order = list(self._known)
            place = f", {order.index(self.candidate) + 1} of {len(order)}" if self.candidate in order else ""
            target = self.view.profile.get("target") or self.view.report.get("target") or ""
            words = f"candidate {self.candidate[:8]}{place}" + (f" on {one_line(str(target), 40)}" if target else "")
        self.query_one("#profile-head", Static).update(plain(words), layout=False)
