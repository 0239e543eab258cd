"""The application: it mounts the panes, hands the core's events to them and their wishes to the core."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.screen import Screen
from textual.widget import Widget

from kforge.errors import KforgeError
from kforge.ui import actions, layout, themes
from kforge.ui.ascii import AsciiFilter
from kforge.ui.core import LONG, Core
from kforge.ui.deciding import WORK
from kforge.ui.diagnostics import of_event
from kforge.ui.layout import NARROW, Desk, Pane
from kforge.ui.panes.glyphs import glyphs
from kforge.ui.progress import Progress
from kforge.ui.settings import Settings
from kforge.ui.status import KeyBar, StatusLine
from kforge.ui.steer import SteerBar, Waiting
from kforge.ui.watch import Watch
from kforge.ui.wishes import Wishes

DOUBLE_S = 0.6  # between two escapes that stop


class KforgeApp(Wishes):
    """The IDE for one op.py. core: what it talks to; settings: [ui] and [keys] of kforge.toml."""

    TITLE = "kforge"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - the base class has it so
    CSS = layout.CSS

    def __init__(self, op: Path, settings: Settings, core: Core | None = None) -> None:
        super().__init__()
        self.op = op.absolute()
        self.settings = settings
        self.core = core or Core(self.op)
        self.core.on_lost = self._core_lost
        self.progress = Progress()
        self.session: dict[str, Any] = {}  # what the core said when it opened op.py
        self.candidate = ""  # digest of the one that diff, profile, accept and export are about
        self.texts: dict[str, dict[str, str]] = {}  # files of candidates by digest
        self.given: dict[str, str] = {}  # the files of the candidate that is being verified
        self.profiled: set[str] = set()  # in this session
        self.disk = Watch(self._changed_outside)
        self._escape = 0.0
        self._leaving = False
        self._status_due = False
        self._aside = False
        self._heard: list[Callable[[str, Mapping[str, Any]], None]] = []
        self._heard_aside: list[Callable[[str, Mapping[str, Any]], None]] = []
        if not glyphs().unicode:
            self._filters.append(AsciiFilter())
        themes.install(self)
        self.theme = themes.theme_name(settings.theme)
        self._own = {a.action.partition("(")[0] for a in actions.ACTIONS.values()} - {"quit"}
        for binding in actions.bindings(settings.keys):
            for key in binding.key.split(","):
                self._bindings.key_to_bindings[key] = [dataclasses.replace(binding, key=key)]

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        """As Textual's; a key that comes when the last screen has gone is nobody's, and no crash."""
        return bool(self._screen_stack) and await super()._check_bindings(key, priority)

    def footer_order(self) -> list[str]:
        """Actions in the order of the key bar."""
        return [a.action for a in sorted(actions.ACTIONS.values(), key=lambda a: a.footer) if a.footer]

    # layout

    def compose(self) -> ComposeResult:
        """Desk, steer bar, status, keys."""
        yield Desk(self._panes(), vim=self.settings.vim)
        yield SteerBar(id="steer-bar")
        yield StatusLine()
        yield KeyBar()

    def _panes(self) -> dict[str, Widget]:
        from kforge.ui.panes import DiffPane, LogPane, ProfilePane, TimelinePane, TreePane

        tree = TreePane()
        panes = {
            "timeline": TimelinePane(),
            "diff": DiffPane(),
            "profile": ProfilePane(),
            "tree": tree,
            "log": LogPane(),
        }
        self._heard = [pane.on_core_event for pane in panes.values() if isinstance(pane, Pane)]
        self._heard_aside = [hear for hear in self._heard if hear != tree.on_core_event] + [tree.on_event_aside]
        return panes

    async def on_mount(self) -> None:
        """op.py first, so that something is there to see; the core starts meanwhile."""
        try:
            await self.desk.editor.open(self.op)
        except KforgeError as error:
            self.exit(error.exit_code, message=f"error: {error.message}")
            return
        self.desk.editor.focus_text()
        self.core.subscribe(self._on_core)
        self.set_interval(1.0, self._show_status)
        self.set_interval(1.0, self.disk.renew)
        self._show_status()
        self.call_after_refresh(lambda: self.run_worker(self._open(), group="open"))

    async def _close_all(self) -> None:
        """What still works, or would be begun by a file's change, would look for widgets that are gone."""
        self._leaving = True
        self.workers.cancel_all()
        await super()._close_all()

    async def on_unmount(self) -> None:
        """Nothing is left running."""
        self.disk.close()
        await self.core.close()

    # the core

    async def ask(self, do: str, /, **arguments: Any) -> dict[str, Any] | None:
        """One request; what goes wrong is said in the notice line, and None is returned."""
        if do in LONG:
            self._begun = None
        try:
            return await self.core.request(do, **arguments)
        except KforgeError as error:
            self.say_error(error)
            return None

    def say_error(self, error: KforgeError) -> None:
        """An error where it is seen, without covering anything."""
        self.bar.notice(f"{error.message} ({error.hint})" if error.hint else error.message, error=True)

    def _on_core(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event: everything that shows something hears of it."""
        if self._anew and kind != "log":
            self.begin_anew()
        if kind in ("run_started", "resumed"):
            self._aside = data.get("command") == "verify"  # one candidate judged: no node of the search's tree
        if self.progress.lost and kind != "log":  # another core speaks
            self.bar.stand("")
        before = self.progress.best
        for hear in self._heard_aside if self._aside else self._heard:
            hear(kind, data)
        self.progress.apply(kind, data)
        if self.progress.best not in ("", before):
            self._best_changed()
        self._status_soon()
        handler = getattr(self, f"_core_{kind}", None)
        if handler is not None:
            handler(data)

    def _core_proposed(self, data: Mapping[str, Any]) -> None:
        if not self.candidate:
            self.candidate = data["candidate"]
        if self.given and data.get("proposer") == "user":
            self.texts[data["candidate"]] = self.given

    def _best_changed(self) -> None:
        """The best candidate is the one that diff, accept and export are about from now on."""
        self.candidate = self.progress.best
        self.refresh_bindings()
        self.run_worker(self.show_candidate(self.candidate), group="source")

    def _core_gate(self, data: Mapping[str, Any]) -> None:
        found = of_event("gate", data)
        if found:
            self._mark(data.get("candidate") or "", found)

    def _core_evaluated(self, data: Mapping[str, Any]) -> None:
        self._mark(data["candidate"], of_event("evaluated", data))
        self.refresh_bindings()

    def _core_profiled(self, data: Mapping[str, Any]) -> None:
        self.profiled.add(str(data["candidate"]))
        lines = (data.get("profile") or {}).get("lines") or {}
        self.desk.editor.take_facts(lines, self.texts.get(data["candidate"], {}))

    def _core_steer(self, data: Mapping[str, Any]) -> None:
        said = data["steer"] if isinstance(data.get("steer"), Mapping) else data
        if data["state"] in ("received", "edited"):
            self.bar.put(Waiting(int(said["id"]), str(said["text"]), str(said["when"])))
        else:
            self.bar.remove_waiting(int(said["id"]))

    def _core_constraint(self, data: Mapping[str, Any]) -> None:
        self.bar.rule(str(data["name"]), str(data.get("origin") or ""), added=data["action"] == "added")

    def _core_written(self, data: Mapping[str, Any]) -> None:
        self.run_worker(self.open_files([Path(name) for name in data["files"]]), group="source")

    def _core_accepted(self, data: Mapping[str, Any]) -> None:
        self.run_worker(self.open_files([Path(name) for name in data["files"]]), group="source")
        self.refresh_bindings()

    def _core_undone(self, data: Mapping[str, Any]) -> None:
        self.run_worker(self.reread([Path(name) for name in data["files"]]), group="source")
        self.refresh_bindings()

    def _core_message(self, data: Mapping[str, Any]) -> None:
        warning = data.get("level") == "warning"
        if warning or not self.bar.urgent:  # the timeline has it anyway
            self.bar.notice(str(data["text"]), error=warning)

    def _core_error(self, data: Mapping[str, Any]) -> None:
        self.bar.notice(str(data["message"]), error=True)

    def _core_run_finished(self, data: Mapping[str, Any]) -> None:
        self.refresh_bindings()

    def _core_lost(self, error: KforgeError) -> None:
        self.progress.running, self.progress.doing = False, ""
        self._forgotten = True
        self._timeline().end_attempts()
        self.bar.disown()
        self.say_error(error)
        self.bar.stand(error.message)
        self._on_core("log", {"text": error.message})
        self.progress.lost = True
        self._show_status()

    def _mark(self, digest: str, found: Iterable[Any]) -> None:
        if digest in self.texts:  # of others the editor shows nothing
            self.desk.editor.take_diagnostics(found, self.texts[digest])

    # status

    def _status_soon(self) -> None:
        if not self._status_due:
            self._status_due = True
            self.set_timer(0.1, self._show_status)

    def _show_status(self) -> None:
        self._status_due = False
        if not self.core.busy:
            self.progress.doing = ""
            self._warned = {what: at for what, at in self._warned.items() if not what.startswith(WORK)}
        for line in self.query(StatusLine):
            line.show(self.progress, self.model or "")

    # keys

    def on_key(self, event: events.Key) -> None:
        """Escape puts away what is open; twice in a row it stops."""
        if event.key != "escape" or len(self.screen_stack) > 1:
            return
        now = time.monotonic()
        if self.desk.editor.close_bar():
            return
        if now - self._escape < DOUBLE_S:
            self._escape = 0.0
            self.action_stop()
        else:
            self._escape = now
            if self.core.waits:
                self.bar.notice("escape again stops")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing under a dialog."""
        return not (len(self.screen_stack) > 1 and action in self._own)

    def offers(self, action: str) -> bool:
        """Whether the key bar has it: accept until a candidate is accepted, then export. The keys always answer."""
        verified = self.progress.reports.get(self.candidate, {}).get("status") == "verified"
        accepted = bool(self.candidate) and self.progress.accepted == self.candidate
        if action == "accept":
            return verified and not accepted
        if action == "export":
            return accepted
        return True

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Everything that can be asked for, for the palette."""
        for action in actions.ACTIONS.values():
            if action.id != "palette":
                key = self.settings.keys.get(action.id, action.key)
                title = f"{action.title} ({actions.shown(key)})" if key else action.title
                yield SystemCommand(title, action.help, lambda a=action: self.run_worker(self.run_action(a.action)))

    # files from outside

    def _changed_outside(self, paths: set[Path]) -> None:
        if not self._leaving:
            self.call_from_thread(self._take_changes, paths)

    def _take_changes(self, paths: set[Path]) -> None:
        if not self._leaving:
            self.run_worker(self.take_changes(paths), group="disk")


def run(op: Path, settings: Settings) -> int:
    """The IDE until it is left; returns the exit code."""
    return KforgeApp(op, settings).run() or 0
