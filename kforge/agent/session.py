"""One run's record: every step goes to the event log, the candidate store and the run index before anyone is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kforge.environment.json import to_json
from kforge.environment.report import Report
from kforge.kernel.candidate import Candidate
from kforge.store.events import RunLog
from kforge.store.index import Index

Emit = Callable[[str, dict[str, Any]], None]


class Session:
    """The record of one run under `state` (`.kforge`). Each method saves first and then tells `emit`."""

    def __init__(self, state: Path, task: Path, options: dict[str, Any], emit: Emit) -> None:
        self.log = RunLog.create(state.resolve() / "runs", task.stem)
        self.index = Index(state.resolve() / "index.sqlite")
        self._emit = emit
        self.evaluations = 0
        self.index.start_run(self.log.id, str(task), self.log.folder)
        self.event("run_started", task=str(task), options=options, run=self.log.id)

    @property
    def folder(self) -> Path:
        """The run's folder: log, candidates, and what evaluations leave there."""
        return self.log.folder

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

    def finish(self, *, status: str, verdict: str, exit_code: int, seconds: float, best: str | None = None) -> None:
        """The run has ended; log and index are closed."""
        self.event("run_finished", status=status, verdict=verdict, exit_code=exit_code, seconds=round(seconds, 3))
        self.index.finish_run(self.log.id, status=status, verdict=verdict, best=best, exit_code=exit_code)
        self.close()

    def close(self) -> None:
        """Release log and index; a run that was not finished stays readable as it is."""
        self.log.close()
        self.index.close()
