"""What is decided about a candidate: look, take, leave, undo, export; and the screens around a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kforge.ui.editing import Editing
from kforge.ui.saying import Saying
from kforge.ui.themes import THEMES, theme_name

WORK = "work: "  # before the name of what is in progress, among the things that leaving would lose


class Deciding(Editing, Saying):
    """Actions on `self.candidate`, and dialogs."""

    _warned: Mapping[str, int] = {}  # edits that leaving would lose, as the person was told

    def _chosen(self) -> str:
        """The candidate that is meant, "" with a notice where there is none."""
        if not self.candidate:
            module = self._module()
            words = f"{module.name} is not judged yet: F5 does that" if module else ""
            self.bar.notice(words or "there is no candidate yet: F2 looks for one", error=True)
        return self.candidate

    # diff

    def action_show_diff(self) -> None:
        """What the candidate changes."""
        self.desk.show("diff", focus=True)
        if self._chosen():
            self.run_worker(self.show_diff(self.candidate), group="diff", exclusive=True)

    async def show_diff(self, candidate: str, against: str | None = None) -> None:
        """A candidate beside what is accepted, else its parent, else op.py. against: "" for op.py, or a digest."""
        self.candidate = candidate
        self.refresh_bindings()
        if against is None:
            accepted = self.progress.accepted
            against = "accepted" if accepted and accepted != candidate else "parent"
        reply = await self.ask("hunks", candidate=candidate, against=against)
        if reply is not None:
            self.query_one("#pane-diff").show(reply)  # type: ignore[attr-defined]
            self.desk.show("diff", focus=True)

    async def take_hunks(self, message: Any) -> None:
        """The hunks that were accepted in the diff, judged, then shown before anything is written."""
        if message.whole:
            self.candidate = message.candidate
        else:
            rejected = [dict(row) for row in message.rejected]
            found = await self.ask(
                "apply_hunks",
                candidate=message.candidate,
                against=message.against,
                accepted=list(message.hunks),
                rejected=rejected,
            )
            if found is None:
                return
            self.candidate = found["candidate"]
            if found.get("judged") and found.get("status") != "verified":
                self.bar.notice(f"the part that was taken is {found['status']}: nothing is written", error=True)
                return
        self.refresh_bindings()
        await self.ask_to_accept()

    # profile

    def action_show_profile(self) -> None:
        """Why the candidate is as fast as it is; profiled now where it was not."""
        self.desk.show("profile", focus=True)
        if self._chosen() and self.candidate not in self.profiled:
            self.work(self.profile(self.candidate))

    async def profile(self, candidate: str) -> None:
        """Profile a candidate; the pane hears of it by the event."""
        self.candidate = candidate
        self.bar.notice("profiling")
        await self.know(candidate)
        if await self.ask("profile", candidate=candidate) is not None:
            self.bar.notice("profiled: alt-m shows another figure in the gutter, alt-j the next hot line")

    # accept, undo, export

    def action_accept(self) -> None:
        """See the evidence, then decide."""
        if self._chosen():
            self.work(self.ask_to_accept(), "accept")

    async def ask_to_accept(self) -> None:
        """The accept screen; what it returns is done."""
        from kforge.ui.dialogs import AcceptScreen

        candidate = self.candidate  # another one may be judged while the dialog is open
        evidence = await self.ask("evidence", candidate=candidate)
        if evidence is None:
            return
        self._stands(evidence)
        self._begun = None  # from here on a dialog is in the way of everything else
        if candidate == self.progress.accepted:
            self.bar.notice("it is accepted already: F10 exports it, /undo takes it back")
        elif await self.push_screen_wait(AcceptScreen(evidence)):
            done = await self.ask("accept", candidate=candidate)
            if done is not None:
                self.bar.notice(f"accepted into {done['folder']}: F10 exports it, /undo takes it back", stay=True)

    def _stands(self, reply: Mapping[str, Any]) -> None:
        """What is accepted by now, as the core says: another process, or an earlier accept, may have decided it."""
        self.progress.accepted = str(reply.get("accepted", self.progress.accepted))
        self.refresh_bindings()

    def action_undo_accept(self) -> None:
        """Take the last accept back."""
        self.work(self._undo(), "accept")

    async def _undo(self) -> None:
        done = await self.ask("undo")
        if done is not None:
            self._stands(done)
            self.bar.notice(f"taken back: {done['folder']} is as it was", stay=True)

    def action_export(self) -> None:
        """Make a package of what is accepted."""
        if self._chosen() and self.candidate != self.progress.accepted:
            self.bar.notice("accept it first: F4", error=True)
        elif self.candidate:
            self.work(self._export(), "export")

    async def _export(self) -> None:
        from kforge.ui.dialogs import ExportScreen

        candidate = self.candidate
        evidence = await self.ask("evidence", candidate=candidate)
        if evidence is None:
            return
        self._begun = None
        wish = await self.push_screen_wait(ExportScreen(evidence, default=f"{self.op.stem}_package"))
        if wish:
            what = "building and testing the package" if wish["build"] else "writing the package"
            self.bar.notice(f"exporting: {what} takes a while", stay=True)
            done = await self.ask("export", candidate=candidate, **wish)
            if done is None:
                self.bar.stand("not exported")  # after the reason, which is shown now
            else:
                stamp = f" ({done['stamp']})" if done["stamp"] else ""
                self.bar.notice(f"exported to {done['folder']}{stamp}: {len(done['files'])} files", stay=True)

    # around a session

    def action_baseline(self) -> None:
        """PyTorch's own kernels for op.py, in a tab."""
        self.work(self._baseline())

    async def _baseline(self) -> None:
        found = await self.ask("baseline_source")
        if found is not None:
            await self.desk.editor.show("inductor_output.py", found["source"])

    def action_sessions(self) -> None:
        """Choose a run to continue."""
        self.run_worker(self._sessions(), group="sessions")

    async def _sessions(self) -> None:
        from kforge.ui.sessions import SessionScreen

        found = await self.ask("runs")
        if found is None:
            return
        run = await self.push_screen_wait(SessionScreen(found["runs"], self.op))
        if run:
            self.work(self.resume(run))

    def action_doctor(self) -> None:
        """What is on this machine."""
        self.work(self._doctor())

    async def _doctor(self) -> None:
        from kforge.ui.first_run import DoctorScreen

        self.bar.notice("looking")
        found = await self.ask("doctor")
        if found is not None:
            await self.push_screen_wait(DoctorScreen(found))

    def action_help(self) -> None:
        """Keys of where the focus is."""
        from kforge.ui.help import HelpScreen

        if len(self.screen_stack) == 1:
            pane = self.desk.focused_pane
            widget = self.desk.panes.get(pane)
            steering = self.focused is not None and self.focused.id == "steer"
            self.push_screen(HelpScreen("steer" if steering else pane, getattr(widget, "HELP", ""), self.settings.keys))

    def action_settings(self) -> None:
        """The settings of kforge.toml."""
        self.run_worker(self._change_settings(), group="settings")

    async def _change_settings(self) -> None:
        from kforge.ui.settings_screen import SettingsScreen

        changed = await self.push_screen_wait(SettingsScreen(self.settings))
        if changed is not None and changed != self.settings:
            self.settings = changed
            self.theme = theme_name(changed.theme)
            self.bar.notice("settings written; keys and vim motions hold from the next start")

    def action_next_theme(self) -> None:
        """Dark, light, high contrast."""
        names = [theme.name for theme in THEMES.values()]
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]

    async def action_quit(self) -> None:
        """Leave, unless edits or work would be lost: then a second time, with the same edits and work."""
        unsaved = {buffer.file: hash(buffer.text) for buffer in self.desk.editor.unsaved}
        work = "" if self.core.busy == "open" else self.core.busy
        lost = {**unsaved, **({WORK + work: 0} if work else {})}
        if lost and lost != self._warned:
            self._warned = lost
            if len(self.screen_stack) > 1:  # a dialog would hide what is said
                self.screen.dismiss(None)
            names = ", ".join(unsaved)
            words = f"not saved: {names}; ctrl+s saves, ctrl+q again leaves" if unsaved else ""
            if work:
                under_way = f"{work} is under way: ctrl+q again leaves and ends it"
                words = f"{words} and ends the {work}" if words else under_way
            self.bar.notice(words, error=True)
            return
        self.exit(0)
