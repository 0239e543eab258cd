"""What other programs' agents may ask of kforge (`kforge mcp`): a workspace, one warm workbench a task, tools on paths.

Paths lie below the workspace's root, links included. One thread uses a desk; `stop` may come from any.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kforge.agent.tools.arguments import parse
from kforge.agent.tools.calling import told
from kforge.agent.tools.confined import inside, is_file, is_folder
from kforge.agent.tools.device import facts, floor_line
from kforge.agent.tools.judging import compared
from kforge.agent.tools.profiling import profile_text
from kforge.agent.tools.registry import Tool, derive
from kforge.agent.tools.skills import listed, page
from kforge.agent.tools.sweeping import searched
from kforge.agent.tools.toolbox import Limits, ToolError, ToolResult, clip
from kforge.agent.tools.words import attempt_text
from kforge.errors import KforgeError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.kernel.sources import read_source

if TYPE_CHECKING:
    from kforge.agent.workbench import Workbench

WARM = 3  # tasks whose judge is kept; the one not asked for longest goes first
_SOURCES = (".cu", ".cuh", ".h")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Warm:
    """A task's workbench; record: ends the record of its run."""

    bench: Workbench
    record: ExitStack


@dataclass
class Desk:
    """root: the workspace. only: the tasks that may be judged, all below the root where empty. state: its `.kforge`."""

    root: Path
    state: Path
    device: str = "auto"
    arch: str | None = None
    only: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
    tell: Tell = lambda text: None
    _warm: dict[Path, _Warm] = field(default_factory=dict)
    _ticket: object = None  # of the call that is being worked on
    _busy: Workbench | None = None  # where it works, once that is known
    _stopped: bool = False  # it was asked to end
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of these three

    def call(self, name: str, arguments: Mapping[str, Any], tell: Tell, ticket: object = None) -> ToolResult:
        """One tool by name. What a client can do wrong comes back as a text with is_error.

        tell: told what is going on. ticket: what `stop` is given to end this call.
        """
        self.tell = tell
        with self._lock:
            self._ticket, self._stopped = ticket, False
        try:
            tool = TOOLS.get(name)
            if tool is None:
                raise ToolError(f"there is no tool {name[:100]!r}", "tools: " + ", ".join(TOOLS))
            answer = tool.run(self, **parse(arguments, tool.parameters))
        except KforgeError as error:
            return ToolResult(clip(told(error), self.limits.result), is_error=True)
        finally:
            with self._lock:
                self._ticket = self._busy = None
        result = answer if isinstance(answer, ToolResult) else ToolResult(answer)
        return replace(result, text=clip(result.text, self.limits.page + self.limits.result))

    def stop(self, ticket: object) -> None:
        """From any thread: end the call that was given this ticket, if it is the one being worked on.

        One whose task is still being read ends as soon as that is done.
        """
        with self._lock:
            if ticket is not None and self._ticket is ticket:
                self._stopped = True
                if self._busy is not None:
                    self._busy.control.stop()

    def close(self) -> None:
        """End every judge and the records of its run."""
        for path in list(self._warm):
            self._end(path)

    def place(self, path: str) -> Path:
        """The real path that a client's path means. UsageError where it lies outside of the workspace."""
        real = inside(self.root, path)
        if real is None:
            raise UsageError(
                f"{path[:200]} lies outside of the workspace {self.root}", "start kforge mcp with another --root"
            )
        return real

    def candidate(self, path: str) -> Candidate:
        """The candidate whose module, or folder, lies there."""
        module = self.place(path)
        if is_folder(module):
            found = sorted(module.glob("*_kforge.py"))
            if len(found) != 1:
                raise UsageError(f"{path} holds {len(found)} files *_kforge.py", "name the candidate's module")
            module = self.place(str(found[0]))
        if not is_file(module):
            raise UsageError(f"no such file: {path[:200]}", "give the module that defines ModelNew")
        for name in _names(module.parent):
            if name.endswith(_SOURCES):
                self.place(str(module.parent / name))
        return Candidate.read(module, proposer="mcp")

    def bench(self, op: str) -> Workbench:
        """The workbench of a task: kept warm, made anew where op.py has changed."""
        path = self.place(op)
        if not is_file(path):
            raise UsageError(f"no such file: {op[:200]}", "give the task's op.py")
        if self.only and path not in self.only:
            names = ", ".join(str(task.relative_to(self.root)) for task in self.only)
            raise UsageError(f"{op[:200]} is not among the tasks that this server judges", f"they are: {names}")
        known = self._warm.pop(path, None)
        if known is not None and known.bench.task.source != read_source(path):
            self._warm[path] = known
            self._end(path)
            known = None
        if known is None:
            while len(self._warm) >= WARM:
                self._end(next(iter(self._warm)))
            known = self._open(path)
        self._warm[path] = known  # at the end: used last
        with self._lock:
            self._busy = known.bench
            self._busy.control.reset()
            if self._stopped:
                self._busy.control.stop()
        return known.bench

    def _open(self, path: Path) -> _Warm:
        from kforge.agent.budget import Budget
        from kforge.agent.opening import prepared_for
        from kforge.agent.session import Session
        from kforge.agent.verify import loaded
        from kforge.agent.workbench import Workbench
        from kforge.environment.target import target_arch
        from kforge.task import resolve_device

        self.tell(f"reading {path.name}")
        task, device = loaded(path, None), resolve_device(self.device)
        session = Session(self.state, path, {"device": self.device, "arch": self.arch}, self._heard, "mcp")
        with ExitStack() as stack:
            stack.enter_context(session.recorded())
            session.event("task_loaded", task=task.name, form=task.form.value, digest=task.digest)
            bench = Workbench(
                prepared_for(task, device, session),
                session,
                arch=self.arch or target_arch(device),
                budget=Budget(seconds=float("inf")),
                state=self.state,
            )
            return _Warm(bench, stack.pop_all())

    def _end(self, path: Path) -> None:
        warm = self._warm.pop(path)
        best = warm.bench.best
        warm.bench.close()
        warm.bench.session.finish(
            status=best.report.status.value if best else "no_candidate",
            verdict=best.report.verdict.value if best else "untimed",
            exit_code=0,
            best=best.candidate.digest if best else None,
        )
        warm.record.close()

    def _heard(self, kind: str, data: Mapping[str, Any]) -> None:
        """Events of the judge as lines for whoever waits."""
        if kind == "building":
            self.tell("building")
        elif kind == "gate":
            outcome = {True: "passed", False: "failed", None: "not run"}[data["passed"]]
            self.tell(f"gate {data['name']}: {outcome}")
        elif kind == "case":
            self.tell(f"compared {data['label']}")
        elif kind == "message":
            self.tell(str(data["text"]))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be read: {error.strerror}") from error


def evaluate(desk: Desk, op: str, candidate: str, plan: Literal["quick", "standard", "full"] = "standard") -> str:
    """Judge a CUDA candidate for a PyTorch op: build, correctness on hostile inputs, honesty, memory accesses, and on a
    GPU its speed against torch eager and torch.compile. The first failing gate ends it and is told in full.

    op: path of the task's op.py, below the workspace.
    candidate: path of the module that defines ModelNew (`<op>_kforge.py`, its .cu files beside it), or its folder.
    plan: how many inputs: quick, standard, or full.
    """
    bench = desk.bench(op)
    given = desk.candidate(candidate)
    return _recorded(
        bench, "evaluate", {"candidate": given.digest, "plan": plan}, lambda: attempt_text(bench.evaluate(given, plan))
    )


def profile(desk: Desk, op: str, candidate: str) -> str:
    """Why a candidate is as fast as it is: which limit binds, how near it is, and at most three findings with evidence,
    source lines, advice and expected gain.

    op: path of the task's op.py, below the workspace.
    candidate: path of the candidate's module, or its folder.
    """
    bench = desk.bench(op)
    given = desk.candidate(candidate)
    return _recorded(bench, "profile", {"candidate": given.digest}, lambda: profile_text(bench.profile(given)))


def compare(desk: Desk, op: str, a: str, b: str, evaluated: bool = True) -> str:
    """Show what two candidates differ in, with both measurements.

    op: path of the task's op.py, below the workspace.
    a: path of one candidate's module, or its folder.
    b: path of the other's.
    evaluated: judge on plan quick what this server has not judged yet.
    """
    bench = desk.bench(op)
    first, second = desk.candidate(a), desk.candidate(b)

    def work() -> str:
        if evaluated:
            known = {attempt.candidate.digest for attempt in bench.attempts}
            for candidate in (first, second):
                if candidate.digest not in known:
                    bench.evaluate(candidate, "quick")
        return compared(bench, (a, first), (b, second))

    return _recorded(bench, "compare", {"a": first.digest, "b": second.digest}, work)


def sweep(desk: Desk, op: str, candidate: str, seconds: float = 30.0) -> str:
    """Search the tuning space that a candidate's kernels declare by `tune={...}`; needs a GPU. The fastest setting is
    told.

    op: path of the task's op.py, below the workspace.
    candidate: path of the candidate's module, or its folder.
    seconds: how long to search at most.
    """
    if not 0 < seconds <= desk.limits.sweep_s:
        raise ToolError(f"seconds lie above 0 and up to {desk.limits.sweep_s:g}")
    bench = desk.bench(op)
    given = desk.candidate(candidate)
    return _recorded(bench, "sweep", {"candidate": given.digest}, lambda: searched(bench, given, seconds)[0])


def device_facts(desk: Desk, op: str = "") -> str:
    """What the target can do: multiprocessors, shared memory, registers, L2, ceilings of memory and arithmetic and
    where the figures come from; with a task, its physical floor.

    op: path of a task's op.py, below the workspace; may be left out.
    """
    from kforge.environment.target import target_arch
    from kforge.task import resolve_device

    if op:
        bench = desk.bench(op)
        return f"{facts(bench.device, bench.arch)}\n{floor_line(bench)}"
    device = resolve_device(desk.device)
    return facts(device, desk.arch or target_arch(device))


def search_skills(desk: Desk, query: str = "") -> str:
    """Find skills: measured knowledge about CUDA op families, techniques and chips. Without a query, list all.

    query: words, for example "softmax long rows" or "bank conflicts".
    """
    return listed(query)


def read_skill(desk: Desk, name: str, file: str = "SKILL.md", first_line: int = 1, lines: int = 400) -> str:
    """Read a skill's page, or a file that lies beside it.

    name: the skill's name.
    file: a file of the skill's folder.
    first_line: the line to begin at, from 1.
    lines: how many lines.
    """
    return page(name, file, first_line, lines, desk.limits.page)


TOOLS: dict[str, Tool] = {
    run.__name__: derive(run) for run in (evaluate, profile, compare, sweep, device_facts, search_skills, read_skill)
}
READ_ONLY = frozenset({"device_facts", "search_skills", "read_skill"})


def _recorded(bench: Workbench, tool: str, arguments: dict[str, Any], work: Callable[[], str]) -> str:
    """The text of `work`, or its error, with an event `tool_call` in the task's run."""
    begin = time.monotonic()

    def record(text: str, failed: bool) -> None:
        seconds = round(time.monotonic() - begin, 3)
        bench.event("tool_call", tool=tool, arguments=arguments, result=text, error=failed, seconds=seconds)

    try:
        text = work()
    except KforgeError as error:
        record(told(error), True)
        raise
    record(text, False)
    return text
