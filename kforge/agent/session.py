"""One run's record: every step goes to the event log, the candidate store and the run index before anyone is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kforge import scratch
from kforge.environment.json import to_json
from kforge.environment.report import Report, Verdict
from kforge.errors import KforgeError, StoreError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.events import RunLog
from kforge.store.index import Index
from kforge.store.sweep import WORK, sweep_runs

Emit = Callable[[str, dict[str, Any]], None]


class Session:
    """The record of one run under `state` (`.kforge`). Each method saves first and then tells `emit`.

    UsageError where `state` cannot be written: nothing has been done yet. What dead runs left is removed.
    """

    def __init__(self, state: Path, task: Path, options: dict[str, Any], emit: Emit, command: str = "suggest") -> None:
        runs = state.resolve() / "runs"
        try:
            self.index = Index(state.resolve() / "index.sqlite")
            try:
                self.log = RunLog.create(runs, task.stem)
                self.index.start_run(self.log.id, str(task), self.log.folder)
            except BaseException:
                self.index.close()
                raise
        except StoreError as error:
            raise UsageError(error.message, error.hint) from error
        self._emit = emit
        self.evaluations = 0
        self.started = time.monotonic()
        self.event("run_started", task=str(task), options=options, run=self.log.id, command=command)
        scratch.sweep()
        sweep_runs(runs, self.index)

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
        """Since the run began."""
        return time.monotonic() - self.started

    def event(self, kind: str, /, **data: Any) -> None:
        """Record one event of kforge.store.events and pass it on."""
        self.log.append(kind, **data)
        self._emit(kind, data)

    def proposed(self, candidate: Candidate) -> None:
        """A candidate exists; its files are stored by content."""
        self.log.candidates.put(candidate)
        self.index.add_candidate(self.log.id, candidate)
        self.event(
            "proposed",
            candidate=candidate.digest,
            proposer=candidate.proposer,
            parent=candidate.parent,
            idea=candidate.idea,
            expected_gain=candidate.expected_gain,
        )

    def evaluated(self, report: Report) -> None:
        """A candidate has its report."""
        self.evaluations += 1
        data = to_json(report)
        self.index.add_evaluation(self.log.id, data)
        self.event(
            "evaluated",
            candidate=report.candidate,
            status=report.status.value,
            verdict=report.verdict.value,
            plan=report.plan,
            speedup=report.speedup.ratio if report.speedup else None,
            ms=report.times_ms.get("candidate"),
            report=data,
        )

    def finish(self, *, status: str, verdict: str, exit_code: int, best: str | None = None) -> None:
        """The run has ended; log and index are closed."""
        seconds = round(self.seconds, 3)
        self.event("run_finished", status=status, verdict=verdict, exit_code=exit_code, seconds=seconds)
        self.index.finish_run(self.log.id, status=status, verdict=verdict, best=best, exit_code=exit_code)
        self.close()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Whatever ends the block goes into the log too, so that nothing found so far is lost without a reason."""
        try:
            yield
        except BaseException as error:
            kind, message, hint, code = _ending(error)
            with suppress(StoreError):  # the reason itself may be that the log cannot be written
                self.event("error", kind=kind, message=message, hint=hint)
                self.finish(status=kind, verdict=Verdict.UNTIMED.value, exit_code=code)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Release log and index; a run that was not finished stays readable as it is."""
        self.log.close()
        self.index.close()


def _ending(error: BaseException) -> tuple[str, str, str, int]:
    """(kind, message, hint, exit code) of what ended a run."""
    if isinstance(error, KforgeError):
        return error.kind, error.message, error.hint, error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted", "", 130
    return "internal", f"{type(error).__name__}: {error}", "", 1
