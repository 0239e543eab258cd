"""What the core keeps between runs: the judge's side of op.py and a warm parent; and workbenches made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kforge.agent.opening import SuggestOptions, tell_prepared
from kforge.agent.session import Emit, Session
from kforge.agent.workbench import Workbench

if TYPE_CHECKING:
    from kforge.agent.control import Control
    from kforge.agent.resume import Past
    from kforge.environment import Prepared
    from kforge.task import Task
    from kforge.worker import Zygote


class Warm:
    """One task's judge and one spare parent at a time."""

    def __init__(self) -> None:
        self._zygote: Zygote | None = None
        self._prepared: Prepared | None = None
        self._task: Task | None = None

    def start(self) -> None:
        """Let the parent start; returns at once."""
        from kforge.worker import Zygote

        if self._zygote is None or self._zygote.aborted:
            self._zygote = Zygote().start()

    def close(self) -> None:
        """End the spare parent."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()

    @contextmanager
    def bench(
        self,
        task: Task,
        options: SuggestOptions,
        emit: Emit,
        control: Control,
        *,
        command: str = "suggest",
        past: Past | None = None,
        more: dict[str, Any] | None = None,
    ) -> Iterator[Workbench]:
        """A workbench of the task in a run of its own, or in that of `past`. more: further options for the log.

        As kforge.agent.opening.opened: what ends the block is recorded before it is raised again.
        """
        from kforge.agent.memory import Memory
        from kforge.kernel import target_arch
        from kforge.task import resolve_device
        from kforge.task.constraints import parse_constraints

        recorded = asdict(options) | (more or {})
        if past is not None:
            past.check(task)
            session = Session.reopen(options.state, past.folder, recorded, emit)
        else:
            session = Session(options.state, task.path, recorded, emit, command)
        bench, told = None, control.on_steer
        with session.recorded():
            try:
                self.start()
                zygote, self._zygote = self._zygote, None
                device = resolve_device(options.device)
                if past is None:
                    session.event("task_loaded", task=task.name, form=task.form.value, digest=task.digest)
                prepared = self._prepare(task, device, session.work)
                if past is None and command == "suggest":
                    tell_prepared(prepared, session)
                bench = Workbench(
                    prepared,
                    session,
                    arch=options.arch or target_arch(None if device == "cpu" else device),
                    zygote=zygote,
                    control=control,
                    budget=options.limits,
                    memory=Memory(options.state / "memory.sqlite"),
                    state=options.state,
                )
                if past is not None:
                    past.restore(bench)
                for constraint in parse_constraints(options.constraints):
                    bench.constrain(constraint, "developer")
                control.check()
                yield bench
            finally:
                if bench is not None:
                    bench.close()
                control.on_steer = told  # what is said from now on waits for the next run
                self.start()  # for the next one

    def prepare(self, task: Task, device: str, event: Callable[..., None]) -> None:
        """Inspect the task before any run: the first one begins with it done. event(kind, **data) hears of it."""
        from kforge import scratch

        prepared = self._prepare(task, device, scratch.make("prepare"))
        tell_prepared(prepared, cast("Session", SimpleNamespace(event=event)))  # events of no run: in no log

    def _prepare(self, task: Task, device: str, folder: Path) -> Prepared:
        from kforge.environment import prepare

        prepared = self._prepared
        if prepared is None or self._task is not task or prepared.device != device:
            prepared = self._prepared = prepare(task, device, folder=folder)
            self._task = task
        prepared.task, prepared.folder = task, folder
        prepared.rooms.clear()  # they lie in the folder of another run
        return prepared
