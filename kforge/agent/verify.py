"""`kforge verify`: one candidate of the user's, judged and recorded as a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.session import Emit, Session
from kforge.environment.report import Report, Status

if TYPE_CHECKING:
    from kforge.task import Task


@dataclass(frozen=True)
class VerifyOptions:
    """What the command line asked for; state is the `.kforge` folder; seed: the judge's entropy, None for a new one."""

    plan: str = "standard"
    device: str = "auto"
    arch: str | None = None
    tolerance: dict[str, float] | None = None
    state: Path = Path(".kforge")
    baseline: str | None = None
    context: str | None = None
    energy: bool = False
    constraints: tuple[str, ...] = ()  # beside those of op.py
    seed: int | None = None
    backward: bool = False  # the candidate is a forward/backward pair: its gradients are judged too


def verify(path: Path, module: Path, options: VerifyOptions, emit: Emit) -> tuple[Report, str]:
    """(report, id of the run). Errors of the task or the machine are KforgeErrors."""
    from kforge.environment import evaluate, prepare
    from kforge.kernel.candidate import Candidate
    from kforge.task import resolve_device

    candidate = Candidate.read(module)
    task = loaded(path, options.tolerance, options.constraints)
    if options.backward:
        from kforge.task.backward import gradient_task

        task = gradient_task(task)
    session = Session(options.state, path, asdict(options) | {"candidate": str(module)}, emit, "verify")
    with session.recorded():
        session.event("task_loaded", task=task.name, form=task.form.value, digest=task.digest)
        session.proposed(candidate)
        device = resolve_device(options.device)

        def tell(kind: str, data: dict[str, Any]) -> None:
            session.event(kind, **{"candidate": candidate.digest} | data)

        report = evaluate(
            task,
            candidate,
            options.plan,
            device=device,
            arch=options.arch,
            on_event=tell,
            reference=prepare(task, device, folder=session.work, entropy=options.seed),
            repro=session.folder / "repro",
            baseline=options.baseline,
            context=options.context,
            energy=options.energy,
        )
        session.evaluated(report)
        code = 0 if report.status is Status.VERIFIED else 1
        session.finish(status=report.status.value, verdict=report.verdict.value, exit_code=code, best=candidate.digest)
    return report, session.log.id


def loaded(path: Path, tolerance: dict[str, float] | None, constraints: Iterable[str] = ()) -> Task:
    """The task of op.py under the command line's rules beside its own, and its tolerance in place of its own."""
    from kforge.task import load_task
    from kforge.task.constraints import parse_constraints
    from kforge.task.tolerance import parse_tolerance

    task = load_task(path)
    task = replace(task, constraints=parse_constraints([*map(str, task.constraints), *constraints]))
    return replace(task, tolerance=parse_tolerance(tolerance)) if tolerance else task
