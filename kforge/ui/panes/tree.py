"""The search tree: attempts under what they came from, scores, dead ends and why, and the memory's lessons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from kforge.agent.directions import tried
from kforge.agent.search.tree import ROOT, Node, Tree
from kforge.ui.leader import Leader
from kforge.ui.panes.entries import COLOURS, kept, milliseconds
from kforge.ui.panes.glyphs import MUTED, glyphs
from kforge.ui.panes.rows import Rows, fitted, wrapped
from kforge.ui.panes.sentences import lesson as lesson_words
from kforge.ui.text import one_line, plain

LESSONS = 200  # shown; all of them are in the memory
DEEPEST = 12  # levels that are indented


class Line(NamedTuple):
    """One row: of an attempt (`node`), drawn when it is in sight, or the text of a lesson."""

    node: int | None
    lead: str = ""
    pruned: bool = False  # the row that says why it is a dead end
    text: Content | None = None
    look: str = ""


class TreeView(Rows):
    """The rows of the tree, then the lessons."""

    DEFAULT_CSS = "TreeView > .tree--lessons { background: $panel; }"
    COMPONENT_CLASSES: ClassVar[set[str]] = {"tree--lessons"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "Down", show=False, id="tree.down"),
        Binding("k", "move(-1)", "Up", show=False, id="tree.up"),
        Binding("space", "fold", "Fold", id="tree.fold"),
        Binding("left", "fold(True)", "Fold", show=False, id="tree.close"),
        Binding("right", "fold(False)", "Unfold", show=False, id="tree.open"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.signs = glyphs()
        self.attempts = Tree()
        self.lessons: list[Mapping[str, Any]] = []
        self.reference = "the reference"
        self.folded: set[int] = set()
        self.lines: list[Line] = []
        self.leader = Leader()
        self._best: int | None = None

    @property
    def count(self) -> int:
        return len(self.lines)

    @property
    def best(self) -> Node | None:
        """The best candidate's attempt; None where there is none, or none of the search."""
        return self.attempts.find(self.leader.digest)

    @property
    def selected(self) -> Node | None:
        """The attempt under the cursor, the root included; None on a lesson."""
        node = self.lines[self.cursor].node if self.cursor < len(self.lines) else None
        return None if node is None else self.attempts.nodes[node]

    def row(self, index: int) -> Content:
        line = self.lines[index]
        if line.node is None:
            return line.text or Content("")
        node = self.attempts.nodes[line.node]
        if not line.pruned:
            return fitted(self._title(node, line.lead), self._laid_out, self.signs.ellipsis)
        words = plain(f"{line.lead}{self.signs.corner} pruned: {one_line(node.pruned, 300)}", "$text-warning")
        return fitted(words, self._laid_out, self.signs.ellipsis)

    def row_class(self, index: int) -> str:
        return self.lines[index].look

    def rebuild(self, width: int) -> None:
        node = self.selected
        best = self.best
        self._best = best.id if best is not None else None
        self.lines = [*self._attempt_rows(), *self._taught(width)]
        if node is not None:
            self.cursor = next((i for i, line in enumerate(self.lines) if line.node == node.id), self.cursor)

    def action_fold(self, closed: bool | None = None) -> None:
        """Hide or show what came from an attempt."""
        node = self.selected
        if node is None or not node.children:
            return
        if closed is None:
            closed = node.id not in self.folded
        (self.folded.add if closed else self.folded.discard)(node.id)
        self.settle()

    def _attempt_rows(self) -> Iterator[Line]:
        stack: list[tuple[int, str, str, int]] = [(ROOT, "", "", 0)]  # node, lead of its row, lead below it, depth
        while stack:
            number, lead, below, depth = stack.pop()
            node = self.attempts.nodes[number]
            yield Line(number, lead)
            if node.pruned:
                yield Line(number, below, pruned=True)
            if number in self.folded:
                continue
            for k, child in enumerate(reversed(node.children)):
                if depth >= DEEPEST:
                    stack.append((child, lead, below, depth + 1))
                    continue
                branch = self.signs.last if k == 0 else self.signs.branch
                stack.append((child, f"{below}{branch}", f"{below}{'  ' if k == 0 else self.signs.pipe}", depth + 1))

    def _title(self, node: Node, lead: str) -> Content:
        signs = self.signs
        folded = f" [{len(node.children)} hidden]" if node.id in self.folded and node.children else ""
        if node.id == ROOT:
            score = f"  {node.visits} judged, value {node.value:.2f}" if node.visits else ""
            return Content.assemble(plain(one_line(self.reference), "bold"), (score + folded, MUTED))
        if node.status is None:
            mark, style = signs.running, "$text-accent"
        elif node.verified:
            mark, style = (signs.best if node.id == self._best else signs.passed), "$text-success"
        else:
            mark, style = signs.failed, "$text-error"
        state = (node.status or "proposed").replace("_", " ")
        parts: list[Content | tuple[str, str]] = [
            (f"{lead} " if lead else "", MUTED), (f"{mark} ", style), (f"#{node.id} ", "bold"),
            (state, COLOURS.get(node.status or "", "$text-accent" if node.status is None else "$text-error")),
        ]  # fmt: skip
        if node.verified and node.verdict:
            parts.append((f" {node.verdict}", COLOURS.get(node.verdict, "$text-error")))
        if node.speedup is not None:
            parts.append((f" {node.speedup:.2f}x", "bold"))
        if node.ms is not None:
            parts.append((f" {milliseconds(node.ms)}", ""))
        if node.reward is not None:
            below = f" value {node.value:.2f} of {node.visits}" if node.visits > 1 else ""
            parts.append((f"  reward {node.reward:.2f}{below}", MUTED))
        words = tried(node.direction, node.idea) or f"by {node.proposer}"
        said = node.failure if node.failed else words
        parts.append(plain(f"  {one_line(said, 300)}", "$text-error" if node.failed else ""))
        parts.append((folded, MUTED))
        return Content.assemble(*parts)

    def _taught(self, width: int) -> Iterator[Line]:
        if not self.lessons:
            return
        yield Line(None)
        yield Line(None, text=Content.styled("Lessons of this and earlier runs", "bold"), look="tree--lessons")
        for data in self.lessons[-LESSONS:]:
            outcome, text, about = lesson_words(data)
            content = Content.assemble(
                plain(f"{self.signs.dot} {one_line(outcome)}", "$text-secondary"),
                plain(f" {one_line(text, 600)}" if text else ""),
                plain(f"  ({one_line(about)})" if about else "", MUTED),
            )  # fmt: skip
            for k, row in enumerate(wrapped(content, width - 2)):
                yield Line(None, text=Content("  ") + row if k else row)


class TreePane(Vertical):
    """Where each attempt came from, what it was worth, and what was learnt."""

    DEFAULT_CSS = """
    TreePane { height: 1fr; }
    TreePane > #tree-head {
        height: 1; padding: 0 1; color: $text-muted; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    TreePane > TreeView { height: 1fr; }
    """
    HELP = """\
# Search tree

The reference is the root; each attempt stands under the one it was made from, with its reward, and its value: the mean
reward of what was judged at and below it. Dead ends say why nothing more is tried below them.

- **space** folds and unfolds, **enter** or **d** shows the attempt's diff to its parent
- **b** goes to the best
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Diff", id="tree.diff"),
        Binding("d", "select", "Diff", show=False, id="tree.diff_too"),
        Binding("b", "best", "Best", show=False, id="tree.best"),
    ]

    class Selected(Message):
        """Show an attempt: its number, and the digest of its candidate."""

        def __init__(self, node: int, candidate: str) -> None:
            self.node, self.candidate = node, candidate
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = TreeView(id="tree-view")
        self._digests: dict[int | None, str] = {}  # by the number that the present run gave

    def compose(self) -> ComposeResult:
        yield Static(id="tree-head", markup=False)
        yield self.view

    def on_mount(self) -> None:
        self._show_head()

    def focus(self, scroll_visible: bool = True, from_app_focus: bool = False) -> TreePane:
        """The tree has the cursor."""
        self.view.focus(scroll_visible)
        return self

    @property
    def attempts(self) -> Tree:
        """The tree that is shown."""
        return self.view.attempts

    def on_core_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event of the core; kinds that are no business of the tree change nothing."""
        self.on_event_aside(kind, data)
        if kind == "run_started":
            self.view.reference = str(data["task"]).rsplit("/", 1)[-1]
            self._digests.clear()
        elif kind == "lesson":
            lesson = {k: kept(v) if isinstance(v, str) else v for k, v in data.items()}
            if lesson in self.view.lessons:  # taught again, by the larger plan
                return
            self.view.lessons.append(lesson)
            del self.view.lessons[: -2 * LESSONS]
        elif kind in ("proposed", "evaluated", "node"):
            self._apply(kind, dict(data))
        else:
            return
        self.view.renew()
        if kind != "node":
            self._show_head()

    def on_event_aside(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event of something else than a search: no node of the tree, but perhaps another best candidate."""
        if self.view.leader.apply(kind, data):
            self.view.renew()

    def _apply(self, kind: str, data: dict[str, Any]) -> None:
        """One tree for all runs of the session: each numbers its attempts from 1, here they go on."""
        number = data.pop("node", None)
        if kind == "node":
            node = self.attempts.find(self._digests.get(number, ""))
            if node is None:
                return
            data["node"] = node.id
        elif number is not None:
            self._digests[number] = str(data["candidate"])
        above = self.attempts.find(self._digests.get(data.pop("parent_node", None), ""))
        if above is not None:
            data["parent_node"] = above.id
        self.view.attempts.apply(kind, data)

    def clear(self) -> None:
        """Forget everything: another session is shown."""
        self.view.attempts, self.view.leader = Tree(), Leader()
        self.view.folded.clear()
        self.view.lessons.clear()
        self._digests.clear()
        self.view.cursor = 0
        self.view.renew()
        self._show_head()

    def action_select(self) -> None:
        node = self.view.selected
        if node is not None and node.candidate:
            self.post_message(self.Selected(node.id, node.candidate))

    def action_best(self) -> None:
        best = self.view.best
        if best is None:
            return
        for above in self.attempts.path(best.id):
            self.view.folded.discard(above.id)
        self.view.settle()
        row = next(i for i, line in enumerate(self.view.lines) if line.node == best.id)
        self.view.move_cursor(row, centre=True)

    def _show_head(self) -> None:
        if not self.is_mounted:
            return
        count = len(self.attempts)
        words = f"{count} attempt{'' if count == 1 else 's'}"
        words += f", search {one_line(self.attempts.steps.search)}" if self.attempts.steps.search else ""
        self.query_one("#tree-head", Static).update(plain(words), layout=False)
