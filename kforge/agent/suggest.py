"""`kforge suggest` and `kforge resume`: search with a model or the engine alone, confirm, write the best.

It decides only what to try next and when to stop; every verdict is the environment's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.attempts import Attempt
from kforge.agent.budget import BudgetSpent
from kforge.agent.control import Control
from kforge.agent.opening import SuggestOptions, opened
from kforge.agent.proposers import Context, EngineProposer, Proposer, ReplayProposer
from kforge.agent.search.tree import Node, first_line
from kforge.agent.session import Emit, check_names
from kforge.agent.workbench import Workbench
from kforge.environment.report import Report, Status, Verdict
from kforge.errors import ModelError, UsageError
from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.agent.chat import Team
    from kforge.agent.resume import Past
    from kforge.engine.calls.settings import Setting

_NEXT = "; write a kernel and judge it with `kforge verify`, or let a chat model try (--model)"
TUNED = 2  # how many of the best candidates have their tuning space searched on a GPU
BEYOND_S = 1.0  # from which on it is said that the budget did not do
# That a first candidate takes, and a confirmation by plan which leaves out all it may.
FIRST_S = {"cpu": 3.0, "cuda": 6.0}
LEAST_S = {"cpu": {"quick": 0.0, "standard": 6.0, "full": 12.0}, "cuda": {"quick": 0.0, "standard": 10.0, "full": 20.0}}
ALONE = "no model configured: the engine answers alone"

__all__ = ["SuggestOptions", "SuggestResult", "find", "resume", "suggest"]


@dataclass(frozen=True)
class SuggestResult:
    """summary: the object of --json. files: what was written. last_line: one sentence that ends the output."""

    summary: dict[str, Any] = field(hash=False)
    exit_code: int
    report: Report | None = None
    candidate: Candidate | None = None
    files: tuple[Path, ...] = ()
    last_line: str = ""


def suggest(
    path: Path, options: SuggestOptions, emit: Emit, *, model: Team | None = None, control: Control | None = None
) -> SuggestResult:
    """Find, judge and write a kernel for the task in `path`. Errors of the task or the machine are KforgeErrors."""
    check_before(path, options)
    with opened(path, options, emit, control=control) as bench:
        return find(bench, options, model)


def resume(
    past: Past, options: SuggestOptions, emit: Emit, *, model: Team | None = None, control: Control | None = None
) -> SuggestResult:
    """Go on with a recorded run in its own log. options: past.options, with other limits where they were given."""
    check_before(past.task, options)
    with opened(past.task, options, emit, control=control, past=past) as bench:
        return find(bench, options, model, resumed=True)


def find(
    bench: Workbench, options: SuggestOptions, model: Team | None = None, *, resumed: bool = False
) -> SuggestResult:
    """Search, confirm and write, on a workbench that is open; the run is finished, its log stays open."""
    return _Run(bench, options, model, resumed)()


def check_before(path: Path, options: SuggestOptions) -> None:
    """Refuse what cannot be written, or recorded, before a long search."""
    check_names(path.absolute(), options.state.absolute())
    if not options.dry_run:
        from kforge.store.outputs import check_outputs

        name = path.resolve().stem
        check_outputs(options.out, [f"{name}_kforge.py", f"{name}_kforge.cu", f"{name}_settings.py"])


class _Run:
    """The steps of one run, in order; what is known so far is on the workbench."""

    def __init__(self, bench: Workbench, options: SuggestOptions, model: Team | None, resumed: bool) -> None:
        self.bench, self.options, self.session, self.model = bench, options, bench.session, model
        self.resumed = resumed
        self.engine = EngineProposer()
        self.failed: list[Attempt] = []  # at the confirmation

    def __call__(self) -> SuggestResult:
        self._foretell()
        try:
            self._search()
            if self.bench.device != "cpu" and not self._no_room():
                self._tune()
        except BudgetSpent as spent:
            self._say(spent.message)
        except ModelError as error:  # what was found until then is not lost with it
            if not self.bench.verified:
                raise
            text = f"{error.message}; the best until then is confirmed"
            self.bench.event("message", text=text, level="warning")
        best = self._confirm()
        return self._end(best)

    def _foretell(self) -> None:
        """That the budget is too small for a confirmation with all that its plan has, before the search."""
        bench, plan = self.bench, self.options.plan
        kind, left = bench.device.split(":")[0], bench.budget.seconds - self.session.seconds
        least = (0.0 if bench.attempts else FIRST_S[kind]) + LEAST_S[kind][plan]
        if left < least:
            where, budget = "the emulator" if kind == "cpu" else "a GPU", bench.budget.seconds
            words = f"{max(0.0, left):.0f} s of the budget of {budget:g} s are left; on {where} a candidate and plan"
            self._say(f"{words} {plan} take at least {least:.0f} s: what has no time is listed as not tested")

    def _say(self, text: str) -> None:
        self.bench.event("message", text=text, level="info")

    # searching

    def _search(self) -> None:
        options = self.options
        if options.replay is not None:
            self._replay(ReplayProposer(options.replay))
        elif self.model is not None:
            from kforge.agent.chat.proposer import ChatProposer

            chat = ChatProposer(self.model, code=options.code)
            self._by_strategy(options.search or "hybrid", [self.engine, chat])
        else:
            if not self.resumed:
                self._say(ALONE)
            if options.search is not None and self.bench.device != "cpu":
                self._by_strategy(options.search, [self.engine])
            else:  # untimed, every order of the engine's kernels is as good
                self._engine_alone(every=options.search is not None)

    def _by_strategy(self, name: str, proposers: list[Proposer]) -> None:
        from kforge.agent.search import ending, search, strategy_named

        bench = self.bench
        memory = bench.memory

        def avoid() -> list[str]:
            return memory.avoided(bench.key) if memory is not None else []

        def settle(_: Node) -> None:
            """The tree's best must be right under the rules that stand now: a steer may have brought some."""
            while (best := bench.tree.best) is not None and not bench.is_current(best.candidate):
                bench.evaluate(bench.candidate(best.candidate), "quick")

        search(bench, strategy_named(name), proposers, on_step=settle, avoid=avoid, beyond_right=True)
        why = ending(self.bench, [proposer.name for proposer in proposers], True)
        if why:
            self._say(why)

    def _engine_alone(self, every: bool) -> None:
        """Its candidates on plan `quick` until the budget or the ideas end; untimed until one is right, or `every`."""
        while every or not (self.bench.device == "cpu" and self.bench.best is not None):
            attempt = self._next(self.engine)
            if attempt is None or (attempt.verified and attempt.report.no_room):
                return

    def _replay(self, recorded: ReplayProposer) -> None:
        while self._next(recorded) is not None:
            pass

    def _next(self, proposer: EngineProposer | ReplayProposer) -> Attempt | None:
        from kforge.agent.search.loop import engine_direction

        bench = self.bench
        bench.control.take(queued=True)  # their rules stand from now on; of the words nobody here makes use
        candidate = proposer.propose(Context(bench, bench.tree.root))
        if candidate is None:
            return None
        if isinstance(proposer, ReplayProposer):
            return bench.evaluate(candidate, "quick", direction=proposer.direction(candidate.digest))
        first = not bench.attempts  # whatever preparing has taken: one candidate is judged
        return bench.evaluate(candidate, "quick", bench.tree.root.id, engine_direction(candidate), beyond=first)

    def _tune(self) -> None:
        """Search the tuning spaces of the fastest candidates; a winner is a new candidate with a report of its own."""
        bench = self.bench
        made = set(bench.tuned.values()) - set(bench.tuned)  # winners have nothing left to tune
        for attempt in [attempt for attempt in bench.verified if attempt.candidate.digest not in made][:TUNED]:
            left = bench.left()["seconds"] or 0.0
            if left <= 0:
                return
            if attempt.candidate.digest not in bench.tuned:
                bench.tune(attempt, left)
            else:  # before the run was resumed, or by a model
                bench.evaluate(bench.candidate(bench.tuned[attempt.candidate.digest]), beyond=True)

    def _confirm(self) -> Attempt | None:
        """The fastest candidate that also passes the plan asked for under the rules that stand, with its verdict."""
        bench = self.bench
        current = self._in_order()
        bench.budget = replace(bench.budget, kept=0.0)
        earlier = sorted((a for a in bench.attempts if a.verified), key=lambda a: (a.ms, a.node.id))  # by other rules
        candidates = {a.candidate.digest: a.candidate for a in [*current, *earlier]}
        for number, candidate in enumerate(candidates.values()):
            if number and bench.left()["seconds"] == 0:
                self._say(f"no time left in the budget to confirm {len(candidates) - number} others")
                return None
            confirmed = self._judged(candidate)
            if confirmed.verified:
                return confirmed
            self.failed.append(confirmed)
        return self._another() if self.failed and self.model is None and self.options.replay is None else None

    def _in_order(self) -> list[Attempt]:
        """What is right under the rules that stand, best first: measured, or where nothing is timed by an estimate."""
        from kforge.agent.untimed import by_estimate

        verified = self.bench.verified
        return by_estimate(self.bench, verified) if self.bench.device == "cpu" else verified

    def _judged(self, candidate: Candidate) -> Attempt:
        """By the plan asked for: whatever the budget says what it requires, the rest while the budget lasts."""
        bench, budget = self.bench, self.bench.budget.seconds
        confirmed = bench.evaluate(
            candidate, self.options.plan, beyond=True, until=time.monotonic() + budget - self.session.seconds
        )
        over = self.session.seconds - budget
        if over > BEYOND_S:
            words = f"the confirmation ended {over:.0f} s beyond the budget of {budget:g} s: the cases that plan"
            self._say(f"{words} {self.options.plan} requires are never left out")
        return confirmed

    def _another(self) -> Attempt | None:
        """What the engine proposes beyond what failed the larger plan, while the budget lasts."""
        bench = self.bench
        try:
            while (bench.left()["seconds"] or 0.0) > 0 and (attempt := self._next(self.engine)) is not None:
                if attempt.verified:
                    confirmed = self._judged(attempt.candidate)
                    if confirmed.verified:
                        return confirmed
                    self.failed.append(confirmed)
        except BudgetSpent as spent:
            self._say(spent.message)
        return None

    def _no_room(self) -> bool:
        return any(attempt.report.no_room for attempt in self.bench.attempts)

    # ending

    def _end(self, best: Attempt | None) -> SuggestResult:
        if best is None:
            return self._without()
        setting = self._setting(best.report)
        files: tuple[Path, ...] = ()
        if not self.options.dry_run:
            files = self._write({**best.candidate.files, **self._setting_files(setting)}, best.candidate.digest)
            self.bench.event("written", files=[str(p) for p in files], folder=str(self.options.out))
        code = 1 if self.options.require_faster and best.report.verdict is not Verdict.FASTER else 0
        last = "no room: the baseline runs at the hardware's floor" if best.report.no_room else ""
        if code:
            last = f"--require faster: the verdict is {best.report.verdict.value}"
        if setting is not None:
            last = f"settings: {setting.words} is {setting.gain:.2f}x eager; {last or 'no kernel beats it'}"
        result = self._summary(best.report, best.candidate.proposer, [relative(p, self.options.here) for p in files])
        result |= {"settings": setting.as_dict()} if setting is not None else {}
        self._finish(best.report.status, best.report.verdict, code, best.candidate.digest)
        return SuggestResult(result, code, best.report, best.candidate, files, last)

    def _summary(self, report: Report, proposer: str, files: list[str]) -> dict[str, Any]:
        from kforge.environment.json import summary

        meter = self.bench.meter
        result = summary(
            report,
            files=files,
            proposer=proposer,
            evaluations=meter.evaluations,
            seconds=self.session.seconds,
            usd=meter.as_dict()["usd"],
        )
        if self.model is not None:
            tokens = {"in": meter.tokens_in, "out": meter.tokens_out, "cached": meter.tokens_cached}
            result |= {"model": self.model.name, "model_calls": meter.calls, "tokens": tokens}
        return result | {"run": self.session.log.id}

    def _setting(self, report: Report | None) -> Setting | None:
        """The settings that no kernel beats, from the report's own times, or the whole ladder's without a report."""
        from kforge.engine.calls.settings import best_setting
        from kforge.environment.ladder import rungs

        if self.bench.device == "cpu" or (report is not None and report.verdict in (Verdict.FASTER, Verdict.MIXED)):
            return None
        if report is not None:
            times = [(s.name, s.wrapper, s.median) for v in report.variants[:1] for s in v.samples]
        else:
            times = rungs(self.bench.prepared, self._say)
        return best_setting(times)

    def _setting_files(self, setting: Setting | None) -> dict[str, str]:
        from kforge.engine.calls.settings import settings_module
        from kforge.environment.target import target_name

        return settings_module(self.bench.task, setting, target_name(self.bench.device)) if setting is not None else {}

    def _write(self, texts: Mapping[str, str], digest: str) -> tuple[Path, ...]:
        """Into --out; where that fails, the error says where the candidate is kept."""
        from kforge.store.outputs import write_outputs

        kept = f"the candidate is kept in {self.session.log.candidates.folder / digest}"
        try:
            return tuple(write_outputs(self.options.out, texts, kept))
        except UsageError as error:  # written to since the run began
            raise UsageError(error.message, f"{error.hint}; {kept}") from error

    def _without(self) -> SuggestResult:
        """No verified candidate: the report of the last failure, or status no_candidate with the operator named."""
        failed = self.failed or [attempt for attempt in self.bench.attempts if not attempt.verified]
        if failed:
            report, proposer = failed[-1].report, failed[-1].candidate.proposer
            last = f"no verified candidate: {report.status.value}: {first_line(report.failure)}"
        else:
            no_room = self._baseline_leaves_no_room()
            report, proposer = self._nothing(no_room), "engine"
            why = self.engine.blocked or self.bench.spent() or "the engine has none"
            tried = f"; {self.model.name} submitted none" if self.model is not None else ""
            last = "no room: keep PyTorch" if no_room else f"no candidate: {why}{tried}{_NEXT}"
        setting = None if report.no_room else self._setting(None)
        files: tuple[Path, ...] = ()
        if setting is not None and not self.options.dry_run:
            files = self._write(self._setting_files(setting), "")
        result = self._summary(report, proposer, [relative(p, self.options.here) for p in files]) | {"reason": last}
        if setting is not None:
            last = f"{last}; settings: {setting.words} is {setting.gain:.2f}x eager"
            result |= {"reason": last, "settings": setting.as_dict()}
            if files:
                self.bench.event("written", files=[str(p) for p in files], folder=str(self.options.out))
        self._finish(report.status, report.verdict, 1, None)
        return SuggestResult(result, 1, report, None, files, last)

    def _nothing(self, no_room: bool) -> Report:
        from kforge.environment.target import target_name

        return Report(
            task=self.bench.task.name,
            candidate="",
            status=Status.NO_CANDIDATE,
            verdict=Verdict.UNTIMED,
            plan="quick",
            target=target_name(self.bench.device),
            no_room=no_room,
        )

    def _baseline_leaves_no_room(self) -> bool:
        from kforge.environment.performance import baseline_no_room

        return self.bench.device != "cpu" and baseline_no_room(self.bench.prepared)

    def _finish(self, status: Status, verdict: Verdict, code: int, best: str | None) -> None:
        self.session.finish(status=status.value, verdict=verdict.value, exit_code=code, best=best)


def relative(path: Path, here: Path) -> str:
    """Relative to the folder that the command was started in where it lies below it (DESIGN: `files`)."""
    absolute = path.absolute()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
