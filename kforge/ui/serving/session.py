"""The state of one session of the core: the task as it was read last, the control, the standing rules, the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge import scratch
from kforge.agent.control import Control, Steer
from kforge.agent.standing import TASK
from kforge.agent.steering import rules
from kforge.store.events import LOG_NAME, RunLog
from kforge.ui.serving.shelf import Shelf
from kforge.ui.serving.warm import Warm

if TYPE_CHECKING:
    from kforge.agent.opening import SuggestOptions
    from kforge.agent.workbench import Workbench
    from kforge.config import Config
    from kforge.task import Task

Tell = Callable[[str, Mapping[str, Any], str], None]
Doctor = Callable[[], dict[str, Any]]


class CoreSession:
    """One op.py. tell(kind, data, run): an event. doctor: what `kforge doctor --json` prints.

    run: whose log takes what happens between runs. bench: of the run in progress.

    What is steered comes from the reading thread, at any moment of a run's beginning and end: `_hearing` is held from
    the look at `bench` until all is done that follows from it.
    """

    def __init__(self, op: Path, settings: Config, tell: Tell, doctor: Doctor) -> None:
        self.op = op.absolute()
        self.settings = settings
        self.state = settings.state.absolute()  # code of the task may change the working folder
        self.out = Path(settings.out).absolute() / op.stem
        self.here = Path.cwd()
        self.run = ""
        self.bench: Workbench | None = None
        self.control = Control(self._steered)
        self.shelf = Shelf(self.state)
        self.tell = tell
        self.doctor = doctor
        self._hearing = threading.RLock()
        self._ruling = threading.Lock()  # of `rules`; nothing else is waited for under it
        self._writing = False  # a run that begins, works or ends has its log open
        self._released: set[str] = set()  # names of rules that were taken back while one began
        self._task: Task | None = None
        self._read: tuple[int, int] | None = None  # op.py when it was loaded
        self.rules: dict[str, str] = {}  # asked for in this session, by name, with their origin
        self.warm = Warm()
        scratch.root()  # made here: lookups in another thread use it too

    def crashed(self, text: str) -> None:
        """Into the log of the latest run, and to who listens."""
        last = text.strip().splitlines()[-1]
        self.note("error", kind="internal", message=last, hint="this is a fault of kforge", traceback=text)

    def close(self) -> None:
        """Nothing outlives the process that is not in a log."""
        self.warm.close()

    @contextmanager
    def working(self, options: SuggestOptions, **more: Any) -> Iterator[Workbench]:
        """A workbench of op.py, as Warm.bench, under the session's rules; rules and notes go to it meanwhile."""
        with self._hearing:
            self._writing = True
            self._released.clear()
            options = replace(options, constraints=tuple(dict.fromkeys((*options.constraints, *self.rules))))
        try:
            with (
                self.warm.bench(self.task(), options, self.emit, self.control, **more) as bench,
                self._serving(bench),
            ):
                yield bench
        finally:
            with self._hearing:
                self._writing = False

    @contextmanager
    def _serving(self, bench: Workbench) -> Iterator[None]:
        with self._hearing:
            self.bench = bench
            for name, origin in self.rules.items():  # some were asked for while it began
                bench.constrain(name, origin)
            for base in self._released:
                if bench.standing.origin(base) not in ("", TASK):
                    bench.release(base)
        try:
            yield
        finally:
            with self._hearing:
                self.bench = None

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """An event that the log has already."""
        if kind == "run_started" or kind == "resumed":
            self.run = str(data.get("run") or self.run)
        self._ruled(kind, data)
        self.tell(kind, data, self.run)

    def note(self, kind: str, /, **data: Any) -> None:
        """An event between runs: into the log of the latest run, if there is one, then to who listens."""
        with self._hearing:
            if self.bench is not None:
                self.bench.event(kind, **data)
                return
            folder = self.state / "runs" / self.run
            if self.run and not self._writing and (folder / LOG_NAME).is_file():
                with RunLog(folder) as log:
                    log.append(kind, **data)
            self._ruled(kind, data)
            if kind == "constraint":
                base = str(data["name"]).partition("=")[0]
                (self._released.add if data["action"] == "removed" else self._released.discard)(base)
            self.tell(kind, data, self.run)

    # the task

    def task(self) -> Task:
        """op.py as it is on disk now; loaded again when it changed. TaskError for what is none."""
        from kforge.agent.verify import loaded

        stamp = self._stamp()
        if self._task is None or stamp != self._read:
            self._task = None
            self._task = loaded(self.op, None)
            self._read = stamp
            self.tell("task_loaded", self.task_facts(self._task), self.run)
        return self._task

    def _stamp(self) -> tuple[int, int]:
        try:
            stat = self.op.stat()
        except OSError:
            return (0, 0)
        return (stat.st_mtime_ns, stat.st_size)

    def task_facts(self, task: Task) -> dict[str, Any]:
        return {"task": task.name, "form": task.form.value, "digest": task.digest}

    def _steered(self, steer: Steer, state: str) -> None:
        """A steer while no run takes it: the run that begins next will."""
        with self._hearing:
            if self.bench is not None:  # it began while the words were on their way
                self.bench.steered(steer, state)
                return
            self.tell("steer", {**asdict(steer), "state": state}, self.run)
            self._rule_by(steer, state)

    def _rule_by(self, steer: Steer, state: str) -> None:
        origin = f"steer {steer.id}"
        wanted = [str(rule) for rule in rules(steer.text)] if state in ("received", "edited") else []
        if state in ("edited", "dropped"):
            for name in [name for name, who in self.rules.items() if who == origin and name not in wanted]:
                self.note("constraint", name=name, action="removed", origin=origin)
        own = [] if self._task is None else [str(rule) for rule in self._task.constraints]
        for name in wanted:
            if name not in self.rules and name not in own:
                self.note("constraint", name=name, action="added", origin=origin)

    def _ruled(self, kind: str, data: Mapping[str, Any]) -> None:
        """What stands in one run stands in the next one too."""
        if kind != "constraint":
            return
        name = str(data["name"])
        with self._ruling:
            rest = {n: o for n, o in self.rules.items() if n.partition("=")[0] != name.partition("=")[0]}
            self.rules = {**rest, name: str(data.get("origin") or "developer")} if data["action"] == "added" else rest
