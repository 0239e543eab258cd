"""What keys, slash commands and panes ask for, turned into requests to the core. The app mixes it in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from textual.app import App
from textual.worker import Worker

from kforge.errors import Interrupted, KforgeError
from kforge.ui.core import CoreLost
from kforge.ui.diagnostics import find
from kforge.ui.layout import EDITOR, PANES, Desk
from kforge.ui.sessions import outcome
from kforge.ui.steer import SteerBar

if TYPE_CHECKING:
    from kforge.ui.core import Core
    from kforge.ui.panes import TimelinePane
    from kforge.ui.progress import Progress
    from kforge.ui.settings import Settings
    from kforge.ui.watch import Watch


class Acting(App[int]):
    """Actions of the app; its state is declared here and made there."""

    op: Path
    core: Core
    settings: Settings
    progress: Progress
    disk: Watch
    session: dict[str, Any]
    candidate: str
    texts: dict[str, dict[str, str]]
    given: dict[str, str]
    profiled: set[str]
    ask: Callable[..., Any]
    say_error: Callable[[KforgeError], None]
    _on_core: Callable[[str, Mapping[str, Any]], None]
    model: str | None = None  # of the next run; None: as kforge.toml says
    budget: float | None = None
    usd: float | None = None
    _refused = False  # op.py is no task as it is
    _begun: Worker[Any] | None = None  # long work that has not asked the core, or the person, yet
    _forgotten = False  # the core that knew the standing rules has ended by itself

    @property
    def desk(self) -> Desk:
        """Editor and panes."""
        return self.query_one(Desk)

    @property
    def bar(self) -> SteerBar:
        """Steering and notices."""
        return self.query_one(SteerBar)

    # opening

    async def _open(self) -> None:
        """Start the core, load op.py, open what stands beside it."""
        self.follow_files()  # before the core is there: what changes meanwhile is seen
        try:
            found = await self.core.request("open", op=str(self.op))
        except KforgeError as error:
            self._not_a_task(error)
            return
        if self._forgotten:  # another core, which has heard of no rule yet
            await self._remind()
            found = {**found, "rules": [*found["rules"], *self._said_rules()]}
        first = not self.session
        earlier = await self._earlier(found) if first else []
        self.session = found
        self.progress.target, self.progress.refused = found["target"], False
        self.bar.set_rules((row["name"], row["origin"]) for row in found["rules"])
        self.model = self.model if self.model is not None else found["model"]
        accepted = found.get("accepted")
        names = accepted["files"] if accepted else [f"{self.op.stem}_kforge.py", f"{self.op.stem}_kforge.cu"]
        beside = not accepted and not Path(found["out"], names[0]).is_file()
        folder = Path(accepted["folder"]) if accepted else self.op.parent if beside else Path(found["out"])
        await self.open_files([folder / name for name in names if (folder / name).is_file()], show=False)
        if accepted:
            self.candidate = self.progress.accepted = accepted["candidate"]
            self.refresh_bindings()
        self.follow_files()
        for text in earlier:
            self._timeline().on_core_event("message", {"text": text, "level": "info"})
        if first or self._refused:
            self._refused = False
            self.desk.editor.take_diagnostics((), {self.op.name: self._op_text()})
            self.bar.notice("F2 looks for a faster kernel, F1 helps", stay=True)
        self.run_worker(self.prepare(), group="prepare", exclusive=True)

    async def _earlier(self, found: Mapping[str, Any]) -> list[str]:
        """What an earlier session has left: its last run, and what was accepted."""
        known = await self.ask("runs") or {}
        said = []
        run = next((r for r in known.get("runs") or () if Path(str(r["task"])).name == self.op.name), None)
        if run is not None:
            said.append(f"last run: {outcome(run)}; /resume shows it")
        accepted = found.get("accepted") or {}
        there = [name for name in accepted.get("files") or () if Path(accepted["folder"], name).is_file()]
        if there:
            said.append(f"accepted: F10 exports it, /undo takes it back ({', '.join(there)})")
        return said

    def _timeline(self) -> TimelinePane:
        pane = self.desk.panes["timeline"]
        assert hasattr(pane, "end_attempts")
        return cast("TimelinePane", pane)

    def _said_rules(self) -> list[dict[str, str]]:
        """The standing rules that op.py does not have itself."""
        return [{"name": name, "origin": who} for name, who in self.bar.rules.items() if who != "op.py"]

    async def _remind(self) -> None:
        """Tell a new core the rules that stand."""
        self._forgotten = False
        for row in self._said_rules():
            await self.ask("constrain", text=row["name"])

    def _not_a_task(self, error: KforgeError) -> None:
        """Why, for as long as it holds, and on its line where it names one."""
        self.say_error(error)
        self._refused = self.progress.refused = True
        self.bar.stand(f"{error.message} ({error.hint})" if error.hint else error.message)
        self.desk.editor.take_diagnostics(find(error.message), {self.op.name: self._op_text()})

    def _op_text(self) -> str:
        buffer = self.desk.editor.buffer(self.op.name)
        return buffer.saved if buffer is not None else ""

    async def prepare(self) -> None:
        """What can be known before anything is proposed (shapes, work, floor); the panes hear of it by events."""
        with contextlib.suppress(Interrupted):
            try:
                await self.core.request("prepare")
            except KforgeError as error:
                if not isinstance(error, CoreLost):
                    self.say_error(error)

    async def open_files(self, paths: Iterable[Path], *, show: bool = True) -> None:
        """Files in tabs, the module first; unsaved edits are kept."""
        for path in sorted(paths, key=lambda p: p.suffix != ".py"):
            try:
                await self.desk.editor.open(path, show=show and path.suffix != ".py")
            except KforgeError as error:
                self.say_error(error)
        self.follow_files()

    async def reread(self, paths: Iterable[Path]) -> None:
        """Files that an undo changed: text as it is now, tabs of those that are gone closed."""
        for path in paths:
            if path.is_file():
                await self.open_files([path], show=False)
            else:
                buffer = self.desk.editor.buffer(path.name)
                if buffer is not None and buffer.path == path:
                    if buffer.text == buffer.saved:
                        await self.desk.editor.close(path.name)
                    else:  # edits that are nowhere else
                        self.desk.editor.removed_on_disk(path)

    async def show_candidate(self, digest: str) -> None:
        """A candidate of the store in read-only tabs, where no file of these names is open for editing."""
        files = await self.know(digest)
        for name, text in sorted(files.items(), key=lambda item: not item[0].endswith(".py")):
            known = self.desk.editor.buffer(name)
            if known is None or known.path is None:
                await self.desk.editor.show(name, text, show=False)

    async def know(self, digest: str) -> dict[str, str]:
        """A candidate's files, asked for once; empty where there are none."""
        if digest not in self.texts:
            found = await self.ask("source", candidate=digest)
            if found is None:
                return {}
            self.texts[digest] = found["files"]
        return self.texts[digest]

    def follow_files(self) -> None:
        """Watch what is open."""
        self.disk.follow(path for b in self.desk.editor.buffers if (path := b.path or b.of) is not None)

    async def take_changes(self, paths: Iterable[Path]) -> None:
        """Files changed on disk: buffers follow; op.py is loaded again, a candidate is judged again."""
        if not self.query(Desk):
            return  # the IDE closes: the panes are gone already
        changed = []
        for path in paths:
            try:
                if self.desk.editor.changed_on_disk(path):
                    changed.append(path)
            except KforgeError as error:
                if path.is_file():
                    self.say_error(error)
                elif self.desk.editor.removed_on_disk(path):
                    self.bar.notice(f"removed from disk: {path.name}; saving writes it again", error=True)
        if not changed:
            return
        self.bar.notice(f"changed on disk: {', '.join(path.name for path in changed)}")
        if self.core.busy:
            return
        if self.op in changed:
            await self._open()
        module = self._module()
        if self.settings.reverify and module is not None and any(path.parent == module.parent for path in changed):
            await self._verify()

    # working

    def work(self, what: Any, group: str = "core") -> None:
        """A coroutine that asks the core for something long; one at a time, also before it has asked."""
        begun = self._begun
        doing = self.core.busy or (begun.name if begun is not None and not begun.is_finished else "")
        if doing:
            what.close()
            self.bar.notice(f"{doing} is in progress: escape twice stops it")
            return
        name = group if group != "core" else str(what.__name__).strip("_")
        self._begun = self.run_worker(what, name=name, group=group)

    def action_run(self) -> None:
        """Run, or stop what runs."""
        if self.core.busy:
            self.action_stop()
        else:
            self.work(self._run())

    async def _run(self, search: str = "") -> None:
        await self._hand_over_waiting()
        self.desk.show("timeline")
        self.bar.notice("", stay=True)
        arguments: dict[str, Any] = {"model": self.model or "", "budget": self.budget, "usd": self.usd}
        result = await self.ask("run", **arguments, **({"search": search} if search else {}))
        self._ended(result)

    def _ended(self, result: Mapping[str, Any] | None) -> None:
        self.progress.running, self.progress.doing = False, ""
        if result is None:
            return
        if result.get("status") == "verified":
            self.bar.notice("verified: F8 shows what changed, F4 accepts it", stay=True)
        else:
            self.bar.notice(str(result.get("last_line") or result.get("status") or "ended"), stay=True)
        self.refresh_bindings()

    async def _hand_over_waiting(self) -> None:
        """What was said while no core was there."""
        if self._forgotten:
            await self._remind()
        for waiting in [w for w in self.bar.waiting if w.id < 0]:
            self.bar.remove_waiting(waiting.id)
            if await self.ask("steer", text=waiting.text, when=waiting.when) is None:
                self.bar.put(waiting)

    def action_stop(self) -> None:
        """End the work in progress within a second."""
        if self.core.waits:
            self.bar.notice("stopping")
            self.run_worker(self._stop(), group="stop", exclusive=True)

    async def _stop(self) -> None:
        what = self.core.busy
        clean = await self.core.stop()
        self.progress.running, self.progress.doing = False, ""
        self._timeline().end_attempts()
        kept = "; the run is kept (/resume continues it)" if what in ("run", "resume") else ""
        self.bar.notice(f"{what or 'that'} stopped{kept}", stay=True)
        if not clean:
            self.bar.disown()
            await self._open_again()

    async def _open_again(self) -> None:
        """A new core knows nothing of this session yet."""
        if await self.ask("open", op=str(self.op)) is not None:
            await self._remind()

    def action_verify(self) -> None:
        """Judge the candidate as the editor has it."""
        self.work(self._verify())

    async def _verify(self, plan: str = "") -> None:
        """By the plan of the settings, or by this one."""
        if self._forgotten:
            await self._remind()
        module = self._module()
        if module is None:
            self.bar.notice("there is no candidate to verify yet: F2 looks for one", error=True)
            return
        files = {
            b.file: b.text for b in self.desk.editor.buffers if b.path is not None and b.path.parent == module.parent
        }
        files.pop(self.op.name, None)
        self.given = files
        chosen = {"plan": plan} if plan else {}
        result = await self.ask("verify", module=str(module), files=files, **chosen)
        self.given = {}
        self.progress.doing = ""
        if result is None:
            return
        self.candidate = result["candidate"]
        self.texts[self.candidate] = files
        self.bar.notice(f"{result['status']}, {result['verdict']}", stay=True)
        self.refresh_bindings()

    def _module(self) -> Path | None:
        """The candidate's module that is open for editing."""
        name = f"{self.op.stem}_kforge.py"
        buffer = self.desk.editor.buffer(name)
        if buffer is None:
            buffer = next((b for b in self.desk.editor.buffers if b.file.endswith("_kforge.py")), None)
        return buffer.path if buffer is not None else None

    # panes

    def action_show_timeline(self) -> None:
        self.desk.show("timeline", focus=True)

    def action_show_tree(self) -> None:
        self.desk.show("tree", focus=True)

    def action_show_log(self) -> None:
        self.desk.show("log", focus=True)

    def action_focus_editor(self) -> None:
        self.desk.show(EDITOR, focus=True)

    def action_next_pane(self) -> None:
        """Around: editor, the panes, the steer input."""
        order = [EDITOR, *PANES]
        here = self.desk.focused_pane or (EDITOR if self.focused and self.focused.id == "steer" else "")
        if here == "log":
            self.action_steer()
            return
        if not here or (self.focused is not None and self.focused.id == "steer"):
            self.desk.show(EDITOR, focus=True)
            return
        self.desk.show(order[order.index(here) + 1], focus=True)

    def action_steer(self) -> None:
        """Into the steer input, at once: keys that follow are meant for it."""
        self.screen.set_focus(self.query_one("#steer"))

    def action_next_tab(self) -> None:
        self.desk.editor.cycle()
