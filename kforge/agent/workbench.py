"""What proposers, tools, the search and the server act on: one task, its judge, the tree of attempts and the limits.

Each attempt goes through `evaluate`: known results are given again, limits and the developer's stop are heeded, every
step is in the log before anyone is told. It decides nothing about what to try next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent import learning
from kforge.agent.attempts import Attempt, Attempts, names_of
from kforge.agent.budget import Budget, BudgetSpent, Meter
from kforge.agent.control import Control, Steer
from kforge.agent.processes import Processes
from kforge.agent.search.tree import Node, Tree
from kforge.agent.session import Session
from kforge.agent.standing import Standing
from kforge.environment.report import Report
from kforge.kernel.candidate import Candidate
from kforge.task.constraints import Constraint

if TYPE_CHECKING:
    from kforge.agent.memory import Key as LessonKey
    from kforge.agent.memory import Memory
    from kforge.environment import Prepared
    from kforge.environment.tuning import Row
    from kforge.task import Task
    from kforge.worker import Zygote


class Workbench:
    """Everything of one run that is shared. Thread-safe are `control`, `constrain`, `release`, `event` and `left`.

    device: "cpu" (emulator) or "cuda:N". arch: built for. arch_asked: None where the device's is meant.
    """

    def __init__(
        self,
        prepared: Prepared,
        session: Session,
        *,
        arch: str,
        zygote: Zygote | None = None,
        control: Control | None = None,
        budget: Budget | None = None,
        meter: Meter | None = None,
        tree: Tree | None = None,
        memory: Memory | None = None,
        constraints: Iterable[Constraint] = (),
        state: Path = Path(".kforge"),
    ) -> None:
        self.prepared, self.session = prepared, session
        self.task: Task = prepared.task
        self.device, self.arch = prepared.device, arch
        self.control = control or Control()
        self.budget, self.meter = budget or Budget(), meter or Meter()
        self.tree = Tree() if tree is None else tree
        self.memory = memory
        self.state = state
        self.attempts = Attempts()
        self._lessons: dict[str, dict[str, Any]] = {}  # by candidate, as the log has them
        self.tuned: dict[str, str] = {}  # winner by the candidate whose tuning space was searched
        self.standing = Standing(self.task.constraints, self.event)
        self._processes = Processes(zygote)
        for constraint in constraints:
            self.standing.add(constraint, "command line")
        self._heard_before = self.control.on_steer  # and after: what is said then waits for another run
        self.control.on_steer = self.steered
        self._forget = self.control.on_stop(self._processes.abort)

    # what is known

    @cached_property
    def key(self) -> LessonKey:
        """Under what the memory keeps this task's lessons."""
        from kforge.agent.memory import key_of
        from kforge.environment.target import target_name

        return key_of(self.prepared.capture(), target_name(self.device))

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """op.py's, the command's and the steers' rules; every evaluation checks them."""
        return self.standing.constraints

    @property
    def best(self) -> Attempt | None:
        """The fastest candidate that is right under the present rules, the first where none was timed."""
        return next(iter(self.verified), None)

    @property
    def verified(self) -> list[Attempt]:
        """What is right under the present rules, fastest first; of each candidate its latest report."""
        return self.attempts.verified(names_of(self.constraints))

    def candidate(self, digest: str) -> Candidate:
        """From the run's store, by its digest or a unique beginning. UsageError where it is not there."""
        return self.session.log.candidates.get(digest)

    def event(self, kind: str, /, **data: Any) -> None:
        """Record one event of kforge.store.events and pass it on."""
        self.session.event(kind, **data)

    def left(self) -> dict[str, float | int | None]:
        """What is left of each budget; None where there is no limit."""
        return self.budget.left(self.meter, self.session.seconds)

    def spent(self) -> str:
        """The limit that is reached, in words; "" where none is."""
        return self.budget.spent(self.meter, self.session.seconds)

    def check(self) -> None:
        """Interrupted where a stop was asked for, BudgetSpent where a limit is reached."""
        self.control.check()
        why = self.spent()
        if why:
            raise BudgetSpent(why)

    def is_current(self, digest: str) -> bool:
        """Whether this candidate has a verdict under the rules that stand now."""
        return self.attempts.judged(digest, names_of(self.constraints))

    # acting

    def propose(self, candidate: Candidate, parent: int | None = None, direction: str = "") -> Node:
        """The candidate's place in the tree; a new one is stored and told. parent: default by the candidate's own."""
        node = self.tree.find(candidate.digest)
        if node is None:
            if parent is None:
                above = self.tree.find(candidate.parent) if candidate.parent else None
                parent = above.id if above else self.tree.root.id
            node = self.tree.add(parent, candidate, direction)
            self.session.proposed(candidate, node)
        return node

    def evaluate(
        self,
        candidate: Candidate,
        plan: str = "quick",
        parent: int | None = None,
        direction: str = "",
        *,
        beyond: bool = False,
        until: float = math.inf,
    ) -> Attempt:
        """Judge a candidate under the present rules; what was judged equally before is given again.

        parent: node of the tree that it was made from. beyond: whatever the budget says (the last confirmation).
        until: on the clock of time.monotonic, when the plan's cases that are not required are over.
        Interrupted on a stop: no candidate is blamed. BudgetSpent where nothing is left.
        """
        self.control.check()
        standing = self.constraints  # one look: a steer may come at any moment
        rules = names_of(standing)
        known = self.attempts.equal(candidate.digest, plan, rules)
        if known is not None:
            return known
        if not beyond:
            self.check()
        node = self.propose(candidate, parent, direction)
        report = self._judge(candidate, plan, standing, until)
        return self._take(node, candidate, report, rules)

    def remember(self, data: Mapping[str, Any]) -> None:
        """Take over a recorded evaluation (resume): an equal one is answered from it."""
        from kforge.environment.json import from_json

        node = self.tree.find(data["candidate"])
        if node is None or "report" not in data:
            return
        report, rules = from_json(Report, data["report"]), tuple(data.get("constraints") or ())
        attempt = Attempt(node, self.candidate(data["candidate"]), report, rules)
        self.attempts.add(attempt)
        self._learn(attempt, tell=False)  # where the run died before it could

    def tune(self, attempt: Attempt, seconds: float) -> tuple[Attempt, list[Row]]:
        """Search the candidate's tuning space; a winner is a new candidate, judged on plan quick. Needs a GPU."""
        from kforge.environment import tune

        self.check()
        with self._working(self.constraints):
            judge = self._trial(attempt)
            tuned, table = tune(self.task, attempt.candidate, self.prepared, self.zygote(), seconds, judge=judge)
        digest = attempt.candidate.digest
        if tuned.digest != digest:  # in the store before the log names it
            self.propose(tuned, attempt.node.id, "tuning")
        self.tuned[digest] = tuned.digest
        if table:
            self.meter.add_evaluations(len(table))
            self.event("tuned", candidate=tuned.digest, parent=digest, table=[list(row) for row in table])
        return (attempt if tuned.digest == digest else self.evaluate(tuned, beyond=True)), table

    def profile(self, candidate: Candidate) -> dict[str, Any]:
        """The object of `kforge profile --json`. KforgeError where the candidate does not build or run."""
        from kforge.agent.profile import ProfileOptions, profile_candidate, summary

        self.control.check()
        options = ProfileOptions(device=self.device, arch=self.arch, state=self.state)
        with self._working(self.constraints):
            found = profile_candidate(self.task, self.prepared.capture(), candidate, options, self.zygote(), self._say)
        self.control.check()
        data = summary(self.task.path.name, found)
        self.event("profiled", candidate=candidate.digest, profile=data)
        return data

    def baseline_source(self) -> str:
        """Inductor's output code for the reference; MissingError says why there is none."""
        from kforge.agent.baseline import inductor_source

        return inductor_source(self.prepared)

    def zygote(self) -> Zygote:
        """The warm parent of candidates' processes, started; after a stop a fresh one. Interrupted while one holds."""
        self.control.check()
        return self._processes.start()

    def constrain(self, rule: str | Constraint, origin: str = "steer") -> tuple[Constraint, ...]:
        """Standing rules from now on: one, or those that free text asks for. UsageError where it asks for none."""
        return self.standing.constrain(rule, origin)

    def release(self, name: str) -> Constraint:
        """This rule is checked no more. UsageError for one of op.py's, or one that does not stand."""
        return self.standing.release(name)

    def steered(self, steer: Steer, state: str) -> None:
        """Record what became of a steer; its rules stand or are released."""
        self.event("steer", id=steer.id, text=steer.text, when=steer.when, state=state)
        self.standing.steered(steer, state)

    def close(self) -> None:
        """End the judge's processes and let go of the control."""
        self._forget()
        self.control.on_steer = self._heard_before
        self._processes.close()
        if self.memory is not None:
            self.memory.close()

    # inside

    @contextmanager
    def _working(self, rules: tuple[Constraint, ...]) -> Iterator[None]:
        """Around work in other processes, under these rules: what fails after a stop failed because of it."""
        self.control.check()
        own = self.prepared.task
        self.prepared.task = replace(own, constraints=rules)
        try:
            yield
        except Exception:
            self._processes.sweep()
            self.control.check()
            raise
        finally:
            self.prepared.task = own
        self._processes.sweep()
        self.control.check()

    def _judge(self, candidate: Candidate, plan: str, rules: tuple[Constraint, ...], until: float) -> Report:
        from kforge.environment import evaluate

        def tell(kind: str, data: Mapping[str, Any]) -> None:
            self.control.check()
            self.event(kind, **{"candidate": candidate.digest} | dict(data))

        with self._working(rules):
            return evaluate(
                self.task,
                candidate,
                plan,
                device=self.device,
                arch=self.arch,
                on_event=tell,
                zygote=self.zygote(),
                reference=self.prepared,
                repro=self.session.folder / "repro",
                until=until,
            )

    def _trial(self, attempt: Attempt) -> Any:
        """Judges one configuration of a tuning space; None leaves it to the environment, which refuses on the CPU."""
        if self.device == "cpu":
            return None
        from kforge.environment import evaluate

        def run(overrides: Mapping[str, Mapping[str, Any]]) -> Report:
            self.control.check()
            return evaluate(
                self.task,
                attempt.candidate,
                "quick",
                device=self.device,
                on_event=lambda kind, data: self.control.check(),
                zygote=self.zygote(),
                reference=self.prepared,
                overrides=overrides,
                repro=None,
            )

        return run

    def _take(self, node: Node, candidate: Candidate, report: Report, rules: tuple[str, ...]) -> Attempt:
        """Enter a report everywhere; the log first."""
        before = self.best
        self.tree.record(node.id, report, report.times_ms.get("eager"))
        attempt = Attempt(node, candidate, report, rules)
        self.meter.add_evaluations()
        self.session.evaluated(report, node, rules)
        self.attempts.add(attempt)
        self.event("meter", **self.meter.as_dict(), seconds=round(self.session.seconds, 3), left=self.left())
        self._learn(attempt)
        if self.memory is not None:
            learning.remind(self.memory, attempt, before, lambda text: self._say(text, "warning"))
        best = self.best
        if best is not None and best is not before and (before is None or best.ms < before.ms):
            speedup = best.report.speedup.ratio if best.report.speedup else None
            ms = best.report.times_ms.get("candidate")
            self.event("best", candidate=best.candidate.digest, speedup=speedup, ms=ms)
        return attempt

    def _learn(self, attempt: Attempt, tell: bool = True) -> None:
        if self.memory is not None:
            lesson = learning.learn(self.memory, self.key, self.tree, attempt, self.session.log.id)
            digest = attempt.candidate.digest
            if tell and self._lessons.get(digest) != lesson:  # a larger plan often teaches the same
                self.event("lesson", **lesson)
            self._lessons[digest] = lesson

    def _say(self, text: str, level: str = "info") -> None:
        self.event("message", text=text, level=level)
