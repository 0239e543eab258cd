"""`kforge suggest`: the loop that joins the rooms. The engine proposes, the environment judges, the best is written.

It decides only what to try next and when to stop; every verdict is the environment's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.session import Emit, Session
from kforge.agent.verify import loaded
from kforge.environment.report import Report, Status, Verdict
from kforge.errors import NoCandidate, UsageError
from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from kforge.environment import Prepared
    from kforge.task import Task
    from kforge.worker import Zygote

TUNED = 2  # how many of the best candidates have their tuning space searched on a GPU


@dataclass(frozen=True)
class SuggestOptions:
    """What the command line asked for. budget in seconds; device auto, cpu or cuda:N; state is the `.kforge` folder."""

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


@dataclass(frozen=True)
class SuggestResult:
    """summary: the object of --json. files: what was written. last_line: one sentence that ends the output."""

    summary: dict[str, Any] = field(hash=False)
    exit_code: int
    report: Report | None = None
    candidate: Candidate | None = None
    files: tuple[Path, ...] = ()
    last_line: str = ""


@dataclass(frozen=True)
class _Attempt:
    candidate: Candidate
    report: Report

    @property
    def ms(self) -> float:
        """The candidate's median time, infinite where it was not timed: untimed attempts keep their order."""
        return self.report.times_ms.get("candidate", float("inf"))


def suggest(path: Path, options: SuggestOptions, emit: Emit) -> SuggestResult:
    """Find, judge and write a kernel for the task in `path`. Errors of the task or the machine are KforgeErrors."""
    from kforge.task import resolve_device
    from kforge.worker import Zygote

    if not options.dry_run:
        from kforge.store.outputs import check_outputs

        name = path.resolve().stem
        check_outputs(options.out, [f"{name}_kforge.py", f"{name}_kforge.cu"])
    task = loaded(path, options.tolerance)
    session = Session(options.state, path, asdict(options), emit)
    # The zygote imports torch while this process does; both are needed before the first evaluation.
    zygote = Zygote()
    with session.recorded():
        try:
            zygote.start()
            session.event("task_loaded", task=task.name, form=task.form.value, digest=task.digest)
            return _Run(task, options, session, zygote, resolve_device(options.device))()
        finally:
            zygote.close()


class _Run:
    """The steps of one run, in order; what is known so far is in its attributes."""

    def __init__(self, task: Task, options: SuggestOptions, session: Session, zygote: Zygote, device: str) -> None:
        self.task, self.options, self.session, self.zygote = task, options, session, zygote
        self.device = device
        self.verified: list[_Attempt] = []
        self.failed: list[_Attempt] = []
        self.blocked = ""  # why the engine proposed nothing

    def __call__(self) -> SuggestResult:
        prepared = self._prepare()
        self._search(prepared)
        if self.device != "cpu" and not self._no_room(prepared):
            self._tune(prepared)
        best = self._confirm(prepared)
        return self._end(prepared, best)

    @property
    def spent(self) -> bool:
        return self.session.seconds > self.options.budget

    def _prepare(self) -> Prepared:
        from kforge.environment import prepare
        from kforge.task import count

        prepared = prepare(self.task, self.device, folder=self.session.work)
        facts = prepared.facts
        assert facts is not None
        notes = [*facts.notes, *facts.skipped, *facts.redirects]
        call = self.task.make_call(0, 0, "cpu")
        self.session.event(
            "task_inspected",
            inputs=_shapes(call),
            outputs=[f"{o.dtype}{list(o.shape)}" for o in facts.outputs],
            degenerate=facts.degenerate,
            notes=notes,
        )
        captured = prepared.capture()
        if captured.graph_module is not None:
            cost = count(captured)
            self.session.event(
                "captured",
                operators=sum(node.op == "call_function" for node in captured.graph_module.graph.nodes),
                read_bytes=cost.read_bytes,
                write_bytes=cost.write_bytes,
                flops=dict(cost.flops),
            )
        floor = prepared.floor()
        if floor is not None:
            self.session.event("floor", floor_ms=floor.ms, bound=floor.bound.value, source=floor.source)
        return prepared

    def _search(self, prepared: Prepared) -> None:
        """Judge proposals on plan `quick`: untimed until one is right, on a GPU until the budget or the ideas end."""
        for candidate in self._proposals(prepared):
            report = self._evaluate(candidate, "quick", prepared)
            attempt = _Attempt(candidate, report)
            if report.status is not Status.VERIFIED:
                self.failed.append(attempt)
            else:
                if attempt.ms < min((a.ms for a in self.verified), default=float("inf")) or not self.verified:
                    speedup = report.speedup.ratio if report.speedup else None
                    ms = report.times_ms.get("candidate")
                    self.session.event("best", candidate=candidate.digest, speedup=speedup, ms=ms)
                self.verified.append(attempt)
                if self.device == "cpu" or report.no_room:
                    break
            if self.spent:
                self.session.event("message", text=f"the budget of {self.options.budget:g} s is spent", level="info")
                break

    def _proposals(self, prepared: Prepared) -> Iterator[Candidate]:
        from kforge.engine import propose
        from kforge.kernel import target_arch

        arch = self.options.arch or target_arch(None if self.device == "cpu" else self.device)
        try:
            for candidate in propose(
                self.task, prepared.capture(), arch=arch, device=self.device, facts=prepared.facts
            ):
                self.session.proposed(candidate)
                yield candidate
        except NoCandidate as error:
            self.blocked = error.message
            self.session.event("message", text=error.message, level="warning")

    def _evaluate(self, candidate: Candidate, plan: str, prepared: Prepared) -> Report:
        from kforge.environment import evaluate

        report = evaluate(
            self.task,
            candidate,
            plan,
            device=self.device,
            arch=self.options.arch,
            on_event=lambda kind, data: self.session.event(kind, **{"candidate": candidate.digest} | data),
            zygote=self.zygote,
            reference=prepared,
            repro=self.session.folder / "repro",
        )
        self.session.evaluated(report)
        return report

    def _tune(self, prepared: Prepared) -> None:
        """Search the tuning spaces of the fastest candidates; a winner is a new candidate with a report of its own."""
        from kforge.environment import tune

        for attempt in sorted(self.verified, key=lambda a: a.ms)[:TUNED]:
            left = self.options.budget - self.session.seconds
            if left <= 0:
                return
            tuned, table = tune(self.task, attempt.candidate, prepared, self.zygote, budget=left)
            self.session.evaluations += len(table)
            if tuned.digest == attempt.candidate.digest:
                continue
            self.session.proposed(tuned)
            self.session.event(
                "tuned", candidate=tuned.digest, parent=attempt.candidate.digest, table=[list(row) for row in table]
            )
            report = self._evaluate(tuned, "quick", prepared)
            (self.verified if report.status is Status.VERIFIED else self.failed).append(_Attempt(tuned, report))

    def _confirm(self, prepared: Prepared) -> _Attempt | None:
        """The fastest candidate that also passes the plan asked for, with its final verdict."""
        for attempt in sorted(self.verified, key=lambda a: a.ms):
            report = self._evaluate(attempt.candidate, self.options.plan, prepared)
            confirmed = _Attempt(attempt.candidate, report)
            if report.status is Status.VERIFIED:
                return confirmed
            self.failed.append(confirmed)
        return None

    def _no_room(self, prepared: Prepared) -> bool:
        return any(attempt.report.no_room for attempt in (*self.verified, *self.failed))

    def _end(self, prepared: Prepared, best: _Attempt | None) -> SuggestResult:
        from kforge.environment.json import summary

        if best is None:
            return self._without(prepared)
        files: tuple[Path, ...] = ()
        if not self.options.dry_run:
            files = self._write(best.candidate)
            self.session.event("written", files=[str(p) for p in files], folder=str(self.options.out))
        code = 1 if self.options.require_faster and best.report.verdict is not Verdict.FASTER else 0
        last = "no room: the baseline runs at the hardware's floor" if best.report.no_room else ""
        if code:
            last = f"--require faster: the verdict is {best.report.verdict.value}"
        result = summary(
            best.report,
            files=[relative(p, self.options.here) for p in files],
            proposer=best.candidate.proposer,
            evaluations=self.session.evaluations,
            seconds=self.session.seconds,
        )
        self._finish(best.report.status, best.report.verdict, code, best.candidate.digest)
        return SuggestResult(result | {"run": self.session.log.id}, code, best.report, best.candidate, files, last)

    def _write(self, candidate: Candidate) -> tuple[Path, ...]:
        """Into --out; where that fails, the error says where the candidate is kept."""
        from kforge.store.outputs import write_outputs

        kept = f"the candidate is kept in {self.session.log.candidates.folder / candidate.digest}"
        try:
            return tuple(write_outputs(self.options.out, candidate.files, kept))
        except UsageError as error:  # written to since the run began
            raise UsageError(error.message, f"{error.hint}; {kept}") from error

    def _without(self, prepared: Prepared) -> SuggestResult:
        """No verified candidate: the report of the last failure, or status no_candidate with the operator named."""
        from kforge.environment.json import summary

        if self.failed:
            attempt = self.failed[-1]
            report, candidate = attempt.report, attempt.candidate
            last = f"no verified candidate: {report.status.value}: {first_line(report.failure)}"
        else:
            no_room = self._baseline_leaves_no_room(prepared)
            report, candidate = self._nothing(no_room), None
            last = "no room: keep PyTorch" if no_room else f"no candidate: {self.blocked or 'the engine has none'}"
        result = summary(
            report,
            proposer=candidate.proposer if candidate else "engine",
            evaluations=self.session.evaluations,
            seconds=self.session.seconds,
        )
        result |= {"run": self.session.log.id, "reason": last}
        self._finish(report.status, report.verdict, 1, None)
        return SuggestResult(result, 1, report, None, (), last)

    def _nothing(self, no_room: bool) -> Report:
        from kforge.environment.target import target_name

        return Report(
            task=self.task.path.name,
            candidate="",
            status=Status.NO_CANDIDATE,
            verdict=Verdict.UNTIMED,
            plan="quick",
            target=target_name(self.device),
            no_room=no_room,
        )

    def _baseline_leaves_no_room(self, prepared: Prepared) -> bool:
        from kforge.environment.performance import baseline_no_room

        return self.device != "cpu" and baseline_no_room(prepared)

    def _finish(self, status: Status, verdict: Verdict, code: int, best: str | None) -> None:
        self.session.finish(status=status.value, verdict=verdict.value, exit_code=code, best=best)


def _shapes(call: Any) -> list[str]:
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((call.args, call.kwargs))
    return [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in leaves if isinstance(t, torch.Tensor)]


def first_line(text: str) -> str:
    """A compiler's log is shown with the report."""
    return text.strip().partition("\n")[0]


def relative(path: Path, here: Path) -> str:
    """Relative to the folder that the command was started in where it lies below it (DESIGN: `files`)."""
    absolute = path.absolute()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
