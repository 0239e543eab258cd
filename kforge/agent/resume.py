"""A recorded run read back, so that it goes on where it ended: tree, verdicts, meters, rules, steers, limits.

Nothing that the log holds is done again: equal evaluations are answered from it (`Workbench.evaluate`), and so are
equal requests to a model (kforge.agent.chat).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.control import Steer
from kforge.agent.opening import SuggestOptions
from kforge.agent.session import reading
from kforge.errors import UsageError
from kforge.store.events import LOG_NAME, Event, replay

if TYPE_CHECKING:
    from kforge.agent.workbench import Workbench
    from kforge.task import Task


@dataclass(frozen=True)
class Past:
    """The events of a run in order. options: those it was started with; task: op.py."""

    folder: Path
    events: tuple[Event, ...]
    task: Path
    options: SuggestOptions

    def check(self, task: Task) -> None:
        """UsageError where op.py is not what it was: its verdicts would be about something else."""
        then = next((e.data.get("digest") for e in self.events if e.kind == "task_loaded"), None)
        if then is not None and then != task.digest:
            raise UsageError(
                f"{task.path.name} has changed since run {self.folder.name}",
                f"start anew: kforge suggest {shlex.quote(str(self.task))}",
            )

    def restore(self, bench: Workbench) -> None:
        """Bring a fresh workbench to where the run ended."""
        with reading(self.folder.name):
            self._restore(bench)

    def _restore(self, bench: Workbench) -> None:
        waiting: dict[int, Steer] = {}
        last = 0
        for event in self.events:
            kind, data = event.kind, event.data
            bench.tree.apply(kind, data)
            bench.meter.apply(kind, data)
            bench.standing.apply(kind, data)
            if kind == "evaluated":
                bench.remember(data)
            elif kind == "tuned" and "parent" in data:
                bench.tuned[str(data["parent"])] = str(data["candidate"])
            elif kind == "steer":
                steer = Steer(int(data["id"]), str(data["text"]), str(data["when"]))
                last = max(last, steer.id)
                if data["state"] in ("received", "edited"):
                    waiting[steer.id] = steer
                else:
                    waiting.pop(steer.id, None)
        bench.control.restore(tuple(waiting.values()), last)

    @property
    def ended(self) -> bool:
        """Whether the run came to its own end, with a candidate or without."""
        from kforge.environment.report import Status

        final = [e for e in self.events if e.kind in ("run_finished", "resumed")][-1:]
        return any(e.kind == "run_finished" and e.data.get("status") in set(Status) for e in final)


def read_past(folder: Path) -> Past:
    """The run in this folder. UsageError where it is no run of `kforge suggest`; KforgeError for a damaged log."""
    path = folder / LOG_NAME
    if not path.is_file():
        raise UsageError(f"no run in {folder}", "`kforge runs list` shows what exists")
    events = tuple(replay(path))
    start: Any = next((e.data for e in events if e.kind == "run_started"), None)
    if start is None or start.get("command", "suggest") != "suggest":
        what = "has not begun" if start is None else f"is one of `kforge {start['command']}`"
        raise UsageError(f"run {folder.name} {what}", "only runs of `kforge suggest` go on")
    with reading(folder.name):
        options = SuggestOptions.read(dict(start["options"]))
        return Past(folder, events, Path(start["task"]), options)


def find_run(runs: Path, name: str | None) -> Path:
    """The folder of a run by its id or a unique beginning; without a name the newest that was cut off. UsageError."""
    known = sorted(path.name for path in runs.iterdir() if (path / LOG_NAME).is_file()) if runs.is_dir() else []
    if name is not None:
        matches = [run for run in known if run == name] or [run for run in known if run.startswith(name)]
        if len(matches) != 1:
            found = f"{len(matches)} runs begin with" if matches else "no run"
            raise UsageError(f"{found} {name!r} in {runs}", "known: " + (", ".join((matches or known)[-5:]) or "none"))
        return runs / matches[0]
    for run in reversed(known):
        try:
            past = read_past(runs / run)
        except UsageError:
            continue
        if not past.ended:
            return runs / run
    raise UsageError(f"no run in {runs} was cut off", "name one, to go on with more budget: `kforge runs list`")
