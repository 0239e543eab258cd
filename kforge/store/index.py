"""The run index: one SQLite file over all runs of a project, with numbered migrations, safe for several processes.

It can be rebuilt from the logs and holds nothing that they lack, the ledger excepted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge.errors import UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.database import Database, numbered
from kforge.store.events import encode

_MIGRATIONS = Path(__file__).with_name("migrations")


@dataclass(frozen=True)
class RunRow:
    """One run as the index knows it. Times in seconds since the epoch; status None: running or died."""

    id: str
    task: str
    target: str | None
    folder: str
    started: float
    finished: float | None
    status: str | None
    verdict: str | None
    best: str | None
    exit_code: int | None
    evaluations: int
    speedup: float | None  # of the best candidate


@dataclass(frozen=True)
class LedgerRow:
    """How one source's advice fared: mean expected (middle of the range) and mean achieved factor, of those timed."""

    source: str
    times_followed: int
    times_timed: int
    expected: float | None
    achieved: float | None


@dataclass(frozen=True)
class EvaluationRow:
    """One evaluation of a candidate: in which run (its folder), of which task (path as given), when, and the Report."""

    run: str
    folder: Path
    task: str
    candidate: str
    time: float
    report: dict[str, Any]


def migrations() -> list[tuple[int, str]]:
    """(number, SQL) of every migration of the index, in order."""
    return numbered(_MIGRATIONS)


class Index(Database):
    """The index in one file; made and migrated when opened. Each method is one transaction."""

    purpose = "the run index"
    unwritten = "the run's own log is complete up to here"
    unread = "move it away: runs themselves are in the folder `runs` beside it"

    def __init__(self, path: Path | str = ".kforge/index.sqlite") -> None:
        super().__init__(path, migrations())

    def start_run(
        self, run: str, task: str, folder: Path | str, *, task_digest: str = "", target: str | None = None
    ) -> None:
        """Enter a run that begins now."""
        self.write(
            "INSERT INTO runs (id, task, task_digest, target, folder, started) VALUES (?, ?, ?, ?, ?, ?)",
            run,
            task,
            task_digest,
            target,
            str(folder),
            time.time(),
        )

    def finish_run(
        self,
        run: str,
        *,
        status: str,
        verdict: str,
        best: str | None = None,
        exit_code: int = 0,
        target: str | None = None,
    ) -> None:
        """Enter how a run ended; target given here replaces the one given at its start. UsageError: unknown run."""
        changed = self.write(
            "UPDATE runs SET finished = ?, status = ?, verdict = ?, best = ?, exit_code = ?,"
            " target = coalesce(?, target) WHERE id = ?",
            time.time(),
            status,
            verdict,
            best,
            exit_code,
            target,
            run,
        )
        if not changed:
            raise UsageError(f"no run {run!r} in {self.path}")

    def reopen_run(
        self, run: str, task: str, folder: Path | str, evaluations: Sequence[tuple[float, dict[str, Any]]]
    ) -> None:
        """A run goes on: it has no end any more, and its evaluations are (time, Report as JSON) of its log again."""
        with self.writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO runs (id, task, task_digest, folder, started) VALUES (?, ?, '', ?, ?)",
                (run, task, str(folder), time.time()),
            )
            db.execute(
                "UPDATE runs SET finished = NULL, status = NULL, verdict = NULL, exit_code = NULL WHERE id = ?", (run,)
            )
            db.execute("DELETE FROM evaluations WHERE run = ?", (run,))
            for when, report in evaluations:
                db.execute(_EVALUATION, _evaluation(run, when, report))

    def add_candidate(self, run: str, candidate: Candidate) -> None:
        """Enter a candidate of a run; entering it again changes nothing."""
        self.write(
            "INSERT OR IGNORE INTO candidates (digest, run, module, proposer, parent, idea, expected_gain)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            candidate.digest,
            run,
            candidate.module,
            candidate.proposer,
            candidate.parent,
            candidate.idea,
            candidate.expected_gain,
        )

    def add_evaluation(self, run: str, report: dict[str, Any]) -> None:
        """Enter a Report given as its JSON object (`dataclasses.asdict` with enums as their values)."""
        self.write(_EVALUATION, *_evaluation(run, time.time(), report))

    def add_advice(
        self,
        run: str,
        *,
        source: str,
        advice: str,
        parent: str,
        child: str,
        expected: tuple[float, float],
        achieved: float | None,
    ) -> None:
        """Enter what advice expected (range of factors over the parent) and achieved (None: untimed, 0: failed)."""
        self.write(
            "INSERT INTO ledger (run, source, advice, parent, child, expected_low, expected_high, achieved, time)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            run,
            source,
            advice,
            parent,
            child,
            *expected,
            achieved,
            time.time(),
        )

    def runs(self, limit: int = 20) -> list[RunRow]:
        """The latest runs, newest first."""
        rows = self.read(
            "SELECT id, task, target, folder, started, finished, status, verdict, best, exit_code,"
            " (SELECT count(*) FROM evaluations e WHERE e.run = runs.id) AS evaluations,"
            " (SELECT e.speedup FROM evaluations e WHERE e.run = runs.id AND e.candidate = runs.best"
            "  ORDER BY e.id DESC LIMIT 1) AS speedup"
            " FROM runs ORDER BY started DESC, id DESC LIMIT ?",
            limit,
        )
        return [RunRow(**row) for row in rows]

    def unfinished(self) -> list[tuple[str, Path]]:
        """(id, folder) of the runs without an end: running now, or dead."""
        rows = self.read("SELECT id, folder FROM runs WHERE finished IS NULL")
        return [(row["id"], Path(row["folder"])) for row in rows]

    def evaluations(self, module: str) -> list[EvaluationRow]:
        """Every evaluation of candidates whose module has this file name, newest first."""
        rows = self.read(
            "SELECT e.run, r.folder, r.task, e.candidate, e.time, e.report FROM evaluations e"
            " JOIN runs r ON r.id = e.run JOIN candidates c ON c.run = e.run AND c.digest = e.candidate"
            " WHERE c.module = ? ORDER BY e.id DESC",
            module,
        )
        return [
            EvaluationRow(
                row["run"],
                Path(row["folder"]),
                row["task"],
                row["candidate"],
                row["time"],
                json.loads(row["report"]),
            )
            for row in rows
        ]

    def ledger(self) -> list[LedgerRow]:
        """Per source: how often its advice was followed and timed, mean expected and mean achieved factor."""
        rows = self.read(
            "SELECT source, count(*) AS times_followed, count(achieved) AS times_timed,"
            " avg(CASE WHEN achieved IS NOT NULL THEN (expected_low + expected_high) / 2 END) AS expected,"
            " avg(achieved) AS achieved FROM ledger GROUP BY source ORDER BY source"
        )
        return [LedgerRow(**row) for row in rows]


_EVALUATION = (
    "INSERT INTO evaluations (run, candidate, time, plan, status, verdict, speedup, ms, seconds, report)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _evaluation(run: str, when: float, report: dict[str, Any]) -> tuple[Any, ...]:
    return (
        run,
        report["candidate"],
        when,
        report["plan"],
        report["status"],
        report["verdict"],
        (report.get("speedup") or {}).get("ratio"),
        (report.get("times_ms") or {}).get("candidate"),
        report.get("seconds"),
        encode(report),
    )
