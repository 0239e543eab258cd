"""`score(task, candidate, plan)`: judges every mutant and keeps a log from which an interrupted run goes on.

A cheaper plan may go first: what it catches in a case that the full plan holds too is caught by the full plan, since
both share the judge's entropy, hence the inputs. Anything else is judged by the full plan itself.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.environment.evaluation import Evaluation
from kforge.environment.inputs import make_plan
from kforge.environment.mutation.equivalence import Argument, read, reason
from kforge.environment.mutation.generation import Mutant, mutants
from kforge.environment.mutation.operators import load
from kforge.environment.mutation.results import MutationReport, Outcome, Trial
from kforge.environment.mutation.source import Cuda, Edit, apply, kernel_name, walk
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.report import Report, Status
from kforge.errors import UsageError

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task import Task
    from kforge.worker import Zygote

PROBE = "*reinterpret_cast<volatile int*>(8) = 0; "  # a statement that cannot run unnoticed


def score(
    task: Task,
    candidate: Candidate,
    plan: str = "standard",
    *,
    prefilter: str | None = "quick",
    cap: int | None = None,
    operators: Collection[str] | None = None,
    log: Path | None = None,
    equivalents: tuple[Argument, ...] | None = None,
    reference: Prepared | None = None,
    zygote: Zygote | None = None,
    device: str = "cpu",
    seconds: float | None = None,
    only: Callable[[Mutant], bool] = lambda mutant: True,
    same_judge: bool = True,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> MutationReport:
    """The share of planted mistakes that a plan catches. UsageError when the candidate itself is not verified.

    prefilter: a cheaper plan that goes first, None for none. cap: mutants per operator. log: JSON lines, one a trial;
    trials that it already holds for this plan are not repeated. equivalents: default those that ship with the package.
    seconds: no further mutant is begun after so long; what is missing is not in the report. only: which mutants to try.
    same_judge: take from the log only trials of the present sources of the judge.
    """
    from kforge.worker import Zygote

    own = None if zygote else Zygote().start()
    try:
        judge = _Judge(reference or prepare(task, device), zygote or own, plan, prefilter)
        return _score(
            judge,
            candidate,
            cap,
            operators,
            log,
            read() if equivalents is None else equivalents,
            seconds,
            only,
            same_judge,
            on_trial,
        )
    finally:
        if own is not None:
            own.close()


def _score(
    judge: _Judge,
    candidate: Candidate,
    cap: int | None,
    operators: Collection[str] | None,
    log: Path | None,
    equivalents: tuple[Argument, ...],
    seconds: float | None,
    only: Callable[[Mutant], bool],
    same_judge: bool,
    on_trial: Callable[[Trial], None],
) -> MutationReport:
    begin = time.monotonic()
    task = judge.prepared.task.name
    launched = judge.launched(candidate)
    done = _read_log(log, judge.plan, same_judge)
    trials = []
    # Shuffled, so that a run that ends early has tried some of every operator.
    for mutant in sorted(filter(only, mutants(candidate, operators, cap, launched)), key=lambda m: m.key):
        trial = done.get(mutant.key)
        if trial is None:
            if seconds is not None and time.monotonic() - begin > seconds:
                continue  # those that the log holds still count
            trial = judge.try_mutant(mutant)
            if trial.outcome is Outcome.SURVIVED and not _argument(mutant, equivalents, task):
                trial = replace(trial, reached=judge.reached(mutant))
            _append(log, judge.plan, trial)
        trial = _argued(trial, _argument(mutant, equivalents, task))
        trials.append(trial)
        on_trial(trial)
    return MutationReport(
        task=task,
        candidate=candidate.digest,
        plan=judge.plan,
        made=_counts(candidate, operators, launched),
        trials=tuple(trials),
        unlaunched=_unlaunched(candidate, operators, launched),
        seconds=round(time.monotonic() - begin, 1),
    )


class _Judge:
    """Evaluates mutants of one task with one plan, and says what it means for the score."""

    def __init__(self, prepared: Prepared, zygote: Any, plan: str, prefilter: str | None) -> None:
        self.prepared, self.zygote, self.plan = prepared, zygote, plan
        self.prefilter = prefilter if prefilter != plan else None
        self.labels = {case.label for case in make_plan(plan, prepared.task.n_variants).cases if not case.extra}

    def evaluate(self, candidate: Candidate, plan: str) -> tuple[Report, Mapping[str, int]]:
        """Report and launches by kernel; the working folder is removed, since there are hundreds of them."""
        evaluation = Evaluation(self.prepared, candidate, plan, None, lambda kind, data: None, self.zygote, None, None)
        try:
            return evaluation.run(timing=False), evaluation.result.launches
        finally:
            shutil.rmtree(evaluation.processes.folder, ignore_errors=True)

    def launched(self, candidate: Candidate) -> frozenset[str]:
        """Names of the kernels that the plan's cases launch."""
        report, launches = self.evaluate(candidate, self.plan)
        if report.status is not Status.VERIFIED:
            raise UsageError(
                f"the candidate is {report.status.value} on plan {self.plan}: {report.failure}",
                hint="only verified candidates have a mutation score",
            )
        return frozenset(kernel_name(name) for name in launches)

    def try_mutant(self, mutant: Mutant) -> Trial:
        begin = time.monotonic()
        for plan in (self.prefilter, self.plan) if self.prefilter else (self.plan,):
            report, _ = self.evaluate(mutant.candidate, plan)
            if report.status is not Status.VERIFIED and (plan == self.plan or self._decides(report)):
                break
        return replace(self._trial(mutant, report), seconds=round(time.monotonic() - begin, 2))

    def _decides(self, report: Report) -> bool:
        """Whether what the cheaper plan found holds for the full plan as well."""
        gate = next(g for g in report.gates if g.passed is False)
        failed = [case.label for case in report.cases if not case.passed]
        return gate.name in ("static", "build") or (bool(failed) and set(failed) <= self.labels)

    def _trial(self, mutant: Mutant, report: Report) -> Trial:
        outcome = {Status.VERIFIED: Outcome.SURVIVED, Status.BUILD_FAILED: Outcome.NOT_COMPILED}
        return Trial(
            task=self.prepared.task.name,
            key=mutant.key,
            operator=mutant.operator,
            file=mutant.file,
            line=mutant.line,
            before=mutant.before,
            after=mutant.after,
            context=mutant.context,
            note=mutant.note,
            outcome=outcome.get(report.status, Outcome.CAUGHT),
            status=report.status.value,
            by=report.plan,
            detail=report.failure[:300],
            untested="; ".join(words for words in report.not_tested if words.startswith("no time left")),
            case=next((case.label for case in report.cases if not case.passed), ""),
        )

    def reached(self, mutant: Mutant) -> bool | None:
        """Whether the plan notices a statement that crashes where the mistake was made; None for Python text."""
        probe = probed(mutant)
        return None if probe is None else self.evaluate(probe, self.plan)[0].status is not Status.VERIFIED


def probed(mutant: Mutant) -> Candidate | None:
    """The mutant with a crash before the statement of its line; None where there is none to put it before."""
    if mutant.file == mutant.candidate.module:
        return None
    source = mutant.candidate.files[mutant.file]
    tree = Cuda(source)
    shift = source.count("\n") - _original_lines(mutant)
    for definition in tree.definitions:
        best = None
        for node in walk(definition.node):
            in_block = node.parent is not None and node.parent.type == "compound_statement" and node.is_named
            if in_block and node.start_point[0] <= mutant.line - 1 + shift <= node.end_point[0]:
                best = node  # the innermost comes last
        if best is not None:
            return mutant.candidate.with_file(
                mutant.file, apply(source, [Edit(best.start_byte, best.start_byte, PROBE)])
            )
    return None


def _original_lines(mutant: Mutant) -> int:
    """Line breaks of the source before headers were put on top of it."""
    source = mutant.candidate.files[mutant.file]
    from kforge.environment.mutation.values import HALF_HEADER

    added = mutant.note == "rounded through half" and source.startswith(HALF_HEADER)
    return source.count("\n") - added


def _argument(mutant: Mutant, equivalents: tuple[Argument, ...], task: str) -> str:
    return load()[mutant.operator].equivalent or reason(equivalents, task, mutant)


def _argued(trial: Trial, why: str) -> Trial:
    """A survivor that has an argument is equivalent."""
    return (
        replace(trial, outcome=Outcome.EQUIVALENT, reason=why) if trial.outcome is Outcome.SURVIVED and why else trial
    )


def _counts(
    candidate: Candidate, operators: Collection[str] | None, launched: Collection[str] | None
) -> dict[str, int]:
    counts: dict[str, int] = {}
    for mutant in mutants(candidate, operators, launched=launched):
        counts[mutant.operator] = counts.get(mutant.operator, 0) + 1
    return counts


def _unlaunched(candidate: Candidate, operators: Collection[str] | None, launched: Collection[str]) -> dict[str, int]:
    names = [
        definition.name
        for file, source in candidate.files.items()
        if file != candidate.module
        for definition in Cuda(source).definitions
        if definition.kernel and definition.name not in launched
    ]
    tried = {m.key for m in mutants(candidate, operators, launched=launched)}
    return {name: sum(m.key not in tried for m in mutants(candidate, operators, launched=[name])) for name in names}


def _read_log(log: Path | None, plan: str, same_judge: bool) -> dict[str, Trial]:
    """Trials of this plan by mutant. A last line that was cut off by an interruption is skipped."""
    if log is None or not log.is_file():
        return {}
    found = {}
    for line in log.read_text().splitlines():
        if line.endswith("}"):
            entry = json.loads(line)
            mine = entry.pop("judge", "") == judge_digest() or not same_judge
            if entry.pop("plan") == plan and mine:
                found[entry["key"]] = Trial(**{**entry, "outcome": Outcome(entry["outcome"])})
    return found


def _append(log: Path | None, plan: str, trial: Trial) -> None:
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            out.write(json.dumps({"plan": plan, "judge": judge_digest(), **asdict(trial)}) + "\n")


@cache
def judge_digest() -> str:
    """Of the sources that decide on a mutant: trials of another state of them are not taken from a log."""
    package = Path(__file__).resolve().parents[2]
    files = sorted(
        path for room in ("environment", "worker", "kernel", "task") for path in (package / room).rglob("*.py")
    )
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
