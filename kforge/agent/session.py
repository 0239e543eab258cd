"""One run's record: every step goes to the event log, the candidate store and the run index before anyone is told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from kforge import scratch
from kforge.agent.search.tree import Node, first_line
from kforge.environment.json import to_json
from kforge.environment.report import Report, Status, Verdict
from kforge.errors import Interrupted, KforgeError, StoreError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.events import Event, RunLog
from kforge.store.index import Index
from kforge.store.sweep import WORK, sweep_runs

Emit = Callable[[str, dict[str, Any]], None]


class Session:
    """The record of one run under `state` (`.kforge`). Each method saves first and then tells `emit`.

    UsageError where `state` cannot be written: nothing has been done yet. What dead runs left is removed.
    """

    def __init__(self, state: Path, task: Path, options: dict[str, Any], emit: Emit, command: str = "suggest") -> None:
        runs = state.resolve() / "runs"
        check_names(task.absolute(), state.absolute())
        with self._opening(state):
            self.log = RunLog.create(runs, task.stem)
            self.index.start_run(self.log.id, str(task), self.log.folder)
        self._begin(emit, 0.0)
        self.event("run_started", task=str(task), options=options, run=self.log.id, command=command)
        scratch.sweep()
        sweep_runs(runs, self.index)

    @classmethod
    def reopen(cls, state: Path, folder: Path, options: dict[str, Any], emit: Emit, known: int | None = None) -> Self:
        """The run in `folder` goes on in its log. UsageError where there is none, or another process writes it.

        known: how many events were read of it before. Where another process has gone on with it since, what was read is
        not what is: UsageError.
        """
        self = cls.__new__(cls)
        with self._opening(state):
            self.log = RunLog(folder)
            events = list(self.log.replay())
            if known is not None and any(event.kind == "resumed" for event in events[known:]):
                self.log.close()
                raise UsageError(f"run {folder.name} went on meanwhile in another process", "run kforge resume again")
            evaluated = [(e.time, e.data["report"]) for e in events if e.kind == "evaluated" and "report" in e.data]
            task = next((str(e.data["task"]) for e in events if e.kind == "run_started"), "")
            with reading(folder.name):
                self.index.reopen_run(self.log.id, task, folder, evaluated)
        self._begin(emit, spent_seconds(events))
        self.event("resumed", options=options, seconds=round(self._before, 3), run=self.log.id)
        scratch.sweep()
        sweep_runs(state.resolve() / "runs", self.index)
        return self

    @contextmanager
    def _opening(self, state: Path) -> Iterator[None]:
        try:
            self.index = Index(state.resolve() / "index.sqlite")
            try:
                yield
            except BaseException:
                self.index.close()
                raise
        except StoreError as error:
            raise UsageError(error.message, error.hint) from error

    def _begin(self, emit: Emit, before: float) -> None:
        self._emit, self._before = emit, before
        self._lock = threading.RLock()
        self.started = time.monotonic()

    @property
    def folder(self) -> Path:
        """The run's folder: log, candidates, and what evaluations leave there."""
        return self.log.folder

    @property
    def work(self) -> Path:
        """Where candidates' processes work."""
        return self.folder / WORK

    @property
    def seconds(self) -> float:
        """Of work on this run, before it was resumed too."""
        return self._before + time.monotonic() - self.started

    def event(self, kind: str, /, **data: Any) -> None:
        """Record one event of kforge.store.events and pass it on; from any thread."""
        with self._lock:
            self.log.append(kind, **data)
            self._emit(kind, data)

    def proposed(self, candidate: Candidate, node: Node | None = None) -> None:
        """A candidate exists; its files are stored by content. node: its place in the search's tree."""
        self.log.candidates.put(candidate)
        self.index.add_candidate(self.log.id, candidate)
        self.event(
            "proposed",
            candidate=candidate.digest,
            proposer=candidate.proposer,
            parent=candidate.parent,
            idea=candidate.idea,
            expected_gain=candidate.expected_gain,
            files=sorted(candidate.files),
            **({} if node is None else {"node": node.id, "parent_node": node.parent, "direction": node.direction}),
        )

    def evaluated(self, report: Report, node: Node | None = None, constraints: Sequence[str] = ()) -> None:
        """A candidate has its report. constraints: the standing rules that it was judged under."""
        data = to_json(report)
        self.event(
            "evaluated",
            candidate=report.candidate,
            status=report.status.value,
            verdict=report.verdict.value,
            plan=report.plan,
            speedup=node.speedup if node else report.speedup.ratio if report.speedup else None,
            ms=report.times_ms.get("candidate"),
            report=data,
            failure=first_line(report.failure) if report.status is not Status.VERIFIED else "",
            constraints=list(constraints),
            **({} if node is None else {"node": node.id, "reward": node.reward}),
        )
        self.index.add_evaluation(self.log.id, data)  # a run that dies before this is mended by `reopen`

    def finish(self, *, status: str, verdict: str, exit_code: int, best: str | None = None) -> None:
        """The run has ended; its log stays open until `close`."""
        seconds = round(self.seconds, 3)
        self.event("run_finished", status=status, verdict=verdict, exit_code=exit_code, seconds=seconds)
        self.index.finish_run(self.log.id, status=status, verdict=verdict, best=best, exit_code=exit_code)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Whatever ends the block goes into the log too, so that nothing found so far is lost without a reason."""
        try:
            yield
        except BaseException as error:
            kind, message, hint, code = _ending(error)
            with suppress(StoreError):  # the reason itself may be that the log cannot be written
                if isinstance(error, Interrupted):
                    self.event("stopped", seconds=round(self.seconds, 3))
                else:
                    self.event("error", kind=kind, message=message, hint=hint)
                self.finish(status=kind, verdict=Verdict.UNTIMED.value, exit_code=code)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Release log and index; a run that was not finished stays readable as it is."""
        self.log.close()
        self.index.close()


def check_names(*paths: Path) -> None:
    """UsageError for a path of bytes that are no UTF-8: the index finds runs by their paths, and compilers are given
    them.
    """
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            shown = os.fsencode(path).decode(errors="backslashreplace")
            raise UsageError(f"the path {shown} is no UTF-8", "rename it, or work in another folder") from error


@contextmanager
def reading(run: str) -> Iterator[None]:
    """Around the reading of a log's events: one that is JSON and not what it was is a KforgeError that says so."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        words = f"run {run} cannot go on: an event of its log is not what it was ({type(error).__name__}: {error})"
        raise KforgeError(
            words, "`kforge runs show` tells what is left of it; start anew with kforge suggest"
        ) from error


def spent_seconds(events: Sequence[Event]) -> float:
    """Of work that a log tells of: the time between its resumptions does not count."""
    total, begin, last = 0.0, None, 0.0
    for event in events:
        if begin is None or event.kind == "resumed":
            total += 0.0 if begin is None else max(0.0, last - begin)
            begin = event.time
        last = event.time
    return total + (0.0 if begin is None else max(0.0, last - begin))


def _ending(error: BaseException) -> tuple[str, str, str, int]:
    """(kind, message, hint, exit code) of what ended a run."""
    if isinstance(error, KforgeError):
        return error.kind, error.message, error.hint, error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted", "", 130
    return "internal", f"{type(error).__name__}: {error}", "", 1
