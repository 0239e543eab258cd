"""A task opened for work: its run's record, the judge prepared, the workbench over both; a recorded run again too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.budget import Budget
from kforge.agent.control import Control
from kforge.agent.session import Emit, Session
from kforge.agent.verify import loaded
from kforge.agent.workbench import Workbench

if TYPE_CHECKING:
    from kforge.agent.resume import Past
    from kforge.environment import Prepared
    from kforge.task import Task


@dataclass(frozen=True)
class SuggestOptions:
    """What the command line asked for. budget in seconds; device auto, cpu or cuda:N; state is the `.kforge` folder.

    search: a name of kforge.agent.search.SEARCHES, None for hybrid with a model and the engine's order without.
    evaluations, tokens, usd: further limits. constraints: as CONSTRAINTS writes them. code: folders that a model may
    read. replay: folder of a run whose candidates are proposed again.
    """

    out: Path
    budget: float = 60.0
    plan: str = "standard"
    device: str = "auto"
    arch: str | None = None
    tolerance: dict[str, float] | None = None
    require_faster: bool = False
    dry_run: bool = False
    state: Path = Path(".kforge")
    here: Path = field(default_factory=Path.cwd)  # the task's code may change the working directory
    model: str | None = None
    base_url: str | None = None
    search: str | None = None
    evaluations: int | None = None
    tokens: int | None = None
    usd: float | None = None
    constraints: tuple[str, ...] = ()
    code: tuple[Path, ...] = ()
    replay: Path | None = None

    @property
    def limits(self) -> Budget:
        """The budgets together."""
        return Budget(self.budget, self.evaluations, self.tokens, self.usd)

    @staticmethod
    def read(data: dict[str, Any]) -> SuggestOptions:
        """From the log of a run. Unknown names (a newer version wrote it) are left out."""
        known = {name: data[name] for name in SuggestOptions.__dataclass_fields__ if name in data}
        for name in ("out", "state", "here", "replay"):
            if known.get(name) is not None:
                known[name] = Path(known[name])
        if known.get("budget") is None:
            known.pop("budget", None)
        known["code"] = tuple(Path(place) for place in known.get("code") or ())
        known["constraints"] = tuple(known.get("constraints") or ())
        return SuggestOptions(**known)


@contextmanager
def opened(
    path: Path, options: SuggestOptions, emit: Emit, *, control: Control | None = None, past: Past | None = None
) -> Iterator[Workbench]:
    """The workbench of the task in `path`. past: the recorded run that goes on, in its own log.

    Errors of the task or the machine are KforgeErrors; what ends the block is recorded before it is raised again.
    """
    from kforge.agent.memory import Memory
    from kforge.kernel import target_arch
    from kforge.task import resolve_device
    from kforge.task.constraints import parse_constraints
    from kforge.worker import Zygote

    asked = parse_constraints(options.constraints)
    task = loaded(path, options.tolerance)
    if past is not None:
        past.check(task)
        session = Session.reopen(options.state, past.folder, asdict(options), emit)
    else:
        session = Session(options.state, path, asdict(options), emit)
    # The zygote imports torch while this process does; both are needed before the first evaluation.
    zygote, bench = Zygote(), None
    with session.recorded(), closing(Memory(options.state / "memory.sqlite")) as memory:
        try:
            zygote.start()
            if past is None:
                session.event("task_loaded", task=task.name, form=task.form.value, digest=task.digest)
            device = resolve_device(options.device)
            bench = Workbench(
                prepared_for(task, device, session, quiet=past is not None),
                session,
                arch=options.arch or target_arch(None if device == "cpu" else device),
                zygote=zygote,
                control=control,
                budget=options.limits,
                memory=memory,
                state=options.state,
            )
            if past is not None:
                past.restore(bench)
            for constraint in asked:
                bench.constrain(constraint, "command line")
            bench.control.check()
            yield bench
        finally:
            if bench is not None:
                bench.close()
            zygote.close()


def prepared_for(task: Task, device: str, session: Session, *, quiet: bool = False) -> Prepared:
    """The judge's side, told event by event. quiet: the log has these events already."""
    from kforge.environment import prepare

    prepared = prepare(task, device, folder=session.work)
    if not quiet:
        tell_prepared(prepared, session)
    return prepared


def tell_prepared(prepared: Prepared, session: Session) -> None:
    """What the judge found out of the task, as events."""
    from kforge.task import count

    task, facts = prepared.task, prepared.facts
    assert facts is not None
    session.event(
        "task_inspected",
        inputs=_shapes(task.make_call(0, 0, "cpu")),
        outputs=[f"{o.dtype}{list(o.shape)}" for o in facts.outputs],
        degenerate=facts.degenerate,
        notes=[*facts.notes, *facts.skipped, *facts.redirects],
    )
    captured = prepared.capture()
    if captured.graph_module is not None:
        cost = count(captured)
        session.event(
            "captured",
            operators=sum(node.op == "call_function" for node in captured.graph_module.graph.nodes),
            read_bytes=cost.read_bytes,
            write_bytes=cost.write_bytes,
            flops=dict(cost.flops),
        )
    floor = prepared.floor()
    if floor is not None:
        session.event("floor", floor_ms=floor.ms, bound=floor.bound.value, source=floor.source)


def _shapes(call: Any) -> list[str]:
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((call.args, call.kwargs))
    return [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in leaves if isinstance(t, torch.Tensor)]
