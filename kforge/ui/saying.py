"""What is said in the steer bar: words for the agent, standing rules, slash commands."""

from __future__ import annotations

import math
from pathlib import Path

from textual import on

from kforge import config
from kforge.errors import KforgeError, UsageError
from kforge.ui import slash
from kforge.ui.acting import Acting
from kforge.ui.progress import Progress
from kforge.ui.steer import Chip, SteerBar, Waiting


class Saying(Acting):
    """Actions of the steer bar."""

    _anew = False  # the next event is the first one of another run

    @on(SteerBar.Said)
    async def _said(self, event: SteerBar.Said) -> None:
        texts = {b.file: b.text for b in self.desk.editor.buffers}
        try:
            text = slash.attach(event.text, slash.reader(Path.cwd(), lambda: texts))
        except UsageError as error:
            self.bar.put(Waiting(event.id if event.id is not None else self.bar.own_id(), event.text, event.when))
            self.say_error(error)
            return
        if event.id is not None and event.id > 0:
            try:
                await self.core.request("steer_edit", steer=event.id, text=text)
                return
            except KforgeError:
                self.bar.notice("it was taken meanwhile: said again")
        own = Waiting(event.id if event.id is not None and event.id < 0 else self.bar.own_id(), text, event.when)
        self.bar.put(own)
        if await self.ask("steer", text=text, when=event.when) is not None:
            self.bar.remove_waiting(own.id)  # the core's event brings it under its own number

    @on(SteerBar.Dropped)
    async def _dropped(self, event: SteerBar.Dropped) -> None:
        if event.id < 0:
            self.bar.remove_waiting(event.id)
        else:
            await self.ask("steer_drop", steer=event.id)

    @on(Chip.Released)
    async def _released(self, event: Chip.Released) -> None:
        await self.ask("release", name=event.name)

    @on(SteerBar.Commanded)
    def _commanded(self, event: SteerBar.Commanded) -> None:
        self.run_worker(self.command(event.name, event.argument), group="command")

    async def command(self, name: str, argument: str) -> None:
        """One slash command."""
        if name == "run":
            self.work(self._run(argument))
        elif name == "verify":
            self._verify_by(argument)
        elif name == "constraint":
            await self.ask("constrain", text=argument)
        elif name == "model":
            self.model = argument
            self.bar.notice(f"the next run asks {argument}" if argument else "the next run is the engine's alone")
        elif name == "budget":
            self._set_budget(argument)
        elif name == "reject":
            await self._reject(argument)
        elif name == "resume":
            await self._resume(argument)
        else:
            if name == "profile":
                self.profiled.discard(self.candidate)  # asked for by name: measured anew
            actions = {"profile": "show_profile", "diff": "show_diff", "undo": "undo_accept"}
            await self.run_action(actions.get(name, name))

    def _verify_by(self, plan: str) -> None:
        try:
            self.work(self._verify(config.parse_plan(plan) if plan else ""))
        except UsageError as error:
            self.say_error(error)

    def _set_budget(self, argument: str) -> None:
        seconds, _, money = argument.partition(" ")
        try:
            budget = config.parse_seconds(seconds)
            usd = float(money.strip().lstrip("$")) if money.strip() else None
            if not math.isfinite(budget) or (usd is not None and not 0 < usd < math.inf):
                raise ValueError
            self.budget, self.usd = budget, usd
        except (UsageError, ValueError):
            self.bar.notice("/budget needs seconds, then dollars: /budget 120s 0.50", error=True)
            return
        dollars = f", ${self.usd:.2f}" if self.usd is not None else ""
        self.bar.notice(f"budget of the next run: {self.budget:g} s{dollars}")

    async def _reject(self, reason: str) -> None:
        if not self.candidate:
            self.bar.notice("there is no candidate to reject", error=True)
            return
        words = f"The developer rejects candidate {self.candidate[:8]}: {reason}"
        await self.ask("steer", text=words, when="now")

    async def _resume(self, run: str) -> None:
        if not run:
            await self.run_action("sessions")
            return
        self.work(self.resume(run))

    async def resume(self, run: str) -> None:
        """Show a run as it was, then continue it. What is shown goes with its first event: there may be no such run."""
        accepted = self.progress.accepted
        self._anew = True
        found = await self.ask("events", run=run)
        self._anew = False
        if found is not None:
            self.progress.accepted = accepted  # now, whatever was accepted at the time of that run
            self._ended(await self.ask("resume", run=run))

    def begin_anew(self) -> None:
        """Nothing of an earlier run is shown any longer."""
        self._anew = False
        for pane in self.desk.panes.values():
            if hasattr(pane, "clear"):
                pane.clear()
        self.progress = Progress(target=self.progress.target, accepted=self.progress.accepted)
        self.bar.notice("", stay=True)
