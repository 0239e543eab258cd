"""What the core keeps between runs: the judge's side of op.py and a warm parent; and workbenches made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.opening import SuggestOptions, at_work, tell_prepared
from kforge.agent.session import Emit, Session
from kforge.agent.workbench import Workbench

if TYPE_CHECKING:
    from kforge.agent.control import Control
    from kforge.agent.resume import Past
    from kforge.environment import Prepared
    from kforge.task import Task
    from kforge.worker import Zygote


def import_all() -> None:
    """Import what the judge needs, where no stop cuts into it: a module half imported would stay so in this process."""
    import torch._dynamo  # noqa: F401

    import kforge.environment.preparation  # noqa: F401


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

    def _take(self) -> Zygote:
        """The spare parent, whose end is the taker's."""
        self.start()
        zygote, self._zygote = self._zygote, None
        assert zygote is not None
        return zygote

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
        """A workbench of the task, as kforge.agent.opening.at_work, of what is kept here."""
        from kforge.task.constraints import parse_constraints

        def prepare(device: str, session: Session) -> Prepared:
            prepared = self._prepare(task, device, session.work)
            if past is None and command == "suggest":
                tell_prepared(prepared, session.event)
            return prepared

        import_all()
        rules = parse_constraints(options.constraints)
        try:
            with at_work(
                task, task.path, options, emit, rules, zygote=self._take, prepare=prepare, control=control, past=past,
                command=command, more=more, origin="developer",
            ) as bench:  # fmt: skip
                yield bench
        finally:
            self.start()  # for the next one

    def prepare(self, task: Task, device: str, event: Callable[..., None]) -> None:
        """Inspect the task before any run: the first one begins with it done. event(kind, **data) hears of it."""
        from kforge import scratch

        prepared = self._prepare(task, device, scratch.make("prepare"))
        tell_prepared(prepared, event)  # of no run: in no log

    def _prepare(self, task: Task, device: str, folder: Path) -> Prepared:
        from kforge.environment import prepare

        prepared = self._prepared
        if prepared is None or self._task is not task or prepared.device != device:
            prepared = self._prepared = prepare(task, device, folder=folder)
            self._task = task
        prepared.task, prepared.folder = task, folder
        prepared.rooms.clear()  # they lie in the folder of another run
        return prepared
