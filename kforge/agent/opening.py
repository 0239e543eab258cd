"""A task opened for work: its run's record, the judge prepared, the workbench over both; a recorded run again too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.budget import Budget
from kforge.agent.control import Control
from kforge.agent.interrupting import interruptible
from kforge.agent.session import Emit, Session
from kforge.agent.verify import loaded
from kforge.agent.workbench import Workbench

if TYPE_CHECKING:
    from kforge.agent.resume import Past
    from kforge.environment import Prepared
    from kforge.task import Task
    from kforge.task.constraints import Constraint
    from kforge.worker import Zygote

KEPT = 0.4  # of a budget, at most, for the confirmation of the best
AROUND_S = {"cpu": 4.0, "cuda": 15.0}  # that it takes beside its plan's own: builds, memory accesses, baselines


@dataclass(frozen=True)
class SuggestOptions:
    """What the command line asked for. budget in seconds; device auto, cpu or cuda:N; state is the `.kforge` folder.

    search: a name of kforge.agent.search.SEARCHES, None for hybrid with a model and the engine's order without.
    reward: a name of REWARDS, by which it values attempts. evaluations, tokens, usd: further limits. constraints: as
    CONSTRAINTS writes them. code: folders that a model may read. replay: folder of a run whose candidates are proposed
    again.
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
    reward: str = "log"
    evaluations: int | None = None
    tokens: int | None = None
    usd: float | None = None
    constraints: tuple[str, ...] = ()
    code: tuple[Path, ...] = ()
    replay: Path | None = None
    backward: bool = False

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
    from kforge.task.constraints import parse_constraints
    from kforge.worker import Zygote

    def prepare(device: str, session: Session) -> Prepared:
        return prepared_for(task, device, session, quiet=past is not None)

    rules = parse_constraints(options.constraints)  # what is wrong with them is said before the task runs
    task = loaded(path, options.tolerance)
    if options.backward:
        from kforge.task.backward import gradient_task

        task = gradient_task(task)
    with at_work(task, path, options, emit, rules, zygote=Zygote, prepare=prepare, control=control, past=past) as bench:
        yield bench


@contextmanager
def at_work(
    task: Task,
    path: Path,
    options: SuggestOptions,
    emit: Emit,
    rules: Iterable[Constraint],
    *,
    zygote: Callable[[], Zygote],
    prepare: Callable[[str, Session], Prepared],
    control: Control | None = None,
    past: Past | None = None,
    command: str = "suggest",
    more: Mapping[str, Any] | None = None,
    origin: str = "command line",
) -> Iterator[Workbench]:
    """A workbench of a loaded task in a run of its own, or in that of `past`.

    path: as the log names the task. zygote, prepare: where the warm parent and the judge's side come from. more:
    further options for the log. origin: who asked for the rules.
    """
    from kforge.agent.memory import Memory
    from kforge.agent.search.tree import Tree
    from kforge.kernel import target_arch
    from kforge.task import resolve_device

    recorded = asdict(options) | dict(more or {})
    if past is not None:
        past.check(task)
        session = Session.reopen(options.state, past.folder, recorded, emit, len(past.events))
    else:
        session = Session(options.state, path, recorded, emit, command)
    parent = bench = None
    with session.recorded(), closing(Memory(options.state / "memory.sqlite")) as memory:
        try:
            parent = zygote()
            parent.start()  # it imports torch while this process prepares
            if past is None:
                session.event("task_loaded", task=task.name, form=task.form.value, digest=task.digest)
            device = resolve_device(options.device)
            prepared = interruptible(control, lambda: prepare(device, session)) if control else prepare(device, session)
            bench = Workbench(
                prepared,
                session,
                arch=options.arch or target_arch(None if device == "cpu" else device),
                zygote=parent,
                control=control,
                budget=replace(options.limits, kept=_kept(options, device)),
                memory=memory,
                state=options.state,
                tree=Tree(options.reward),
            )
            if past is not None:
                past.restore(bench)
            for constraint in rules:
                bench.constrain(constraint, origin)
            bench.control.check()
            yield bench
        finally:
            if bench is not None:
                bench.close()
            if parent is not None:
                parent.close()


def _kept(options: SuggestOptions, device: str) -> float:
    """Seconds of the budget for the last confirmation: what it is likely to take, at most a share of the whole."""
    from kforge.environment.inputs import make_plan

    likely = make_plan(options.plan).seconds(device) + AROUND_S[device.split(":")[0]]
    return min(likely, KEPT * options.budget)


def prepared_for(task: Task, device: str, session: Session, *, quiet: bool = False) -> Prepared:
    """The judge's side, told event by event. quiet: the log has these events already."""
    from kforge.environment import prepare

    prepared = prepare(task, device, folder=session.work)
    if not quiet:
        tell_prepared(prepared, session.event)
    return prepared


def tell_prepared(prepared: Prepared, event: Callable[..., None]) -> None:
    """What the judge found out of the task, each as event(kind, **data)."""
    from kforge.task import count

    task, facts = prepared.task, prepared.facts
    assert facts is not None
    event(
        "task_inspected",
        inputs=_shapes(task.make_call(0, 0, "cpu")),
        outputs=[f"{o.dtype}{list(o.shape)}" for o in facts.outputs],
        degenerate=facts.degenerate,
        notes=[*facts.notes, *facts.skipped, *facts.redirects],
    )
    captured = prepared.capture()
    if captured.graph_module is not None:
        cost = count(captured)
        event(
            "captured",
            operators=sum(node.op == "call_function" for node in captured.graph_module.graph.nodes),
            read_bytes=cost.read_bytes,
            write_bytes=cost.write_bytes,
            flops=dict(cost.flops),
        )
    floor = prepared.floor()
    if floor is not None:
        event("floor", floor_ms=floor.ms, bound=floor.bound.value, source=floor.source)


def _shapes(call: Any) -> list[str]:
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((call.args, call.kwargs))
    return [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in leaves if isinstance(t, torch.Tensor)]
