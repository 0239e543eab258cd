"""The run index: one SQLite file over all runs of a project, with numbered migrations, safe for several processes.

It can be rebuilt from the logs and holds nothing that they lack, the ledger excepted.
"""

from __future__ import annotations

import fcntl
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge.errors import KforgeError, StoreError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.events import encode
from kforge.store.faults import reason, storing

ELSEWHERE = "choose another folder by KFORGE_STATE, or `state` in kforge.toml"
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
    """(number, SQL) of every migration, in order, numbered from 1 without gaps."""
    found: list[tuple[int, str]] = []
    for path in sorted(_MIGRATIONS.glob("*.sql")):
        match = re.match(r"(\d{4})_", path.name)
        if match is None or int(match[1]) != len(found) + 1:
            raise KforgeError(f"migration {path.name} is out of order", f"number it {len(found) + 1:04d}")
        found.append((int(match[1]), path.read_text()))
    return found


class Index:
    """The index in one file; made and migrated when opened. Each method is one transaction."""

    def __init__(self, path: Path | str = ".kforge/index.sqlite") -> None:
        self.path = Path(path)
        with storing(self.path, ELSEWHERE):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit mode: transactions are begun by hand so that writers queue instead of failing half-way.
            self._db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        try:
            # Two processes that make the file at once: the busy timeout does not cover the change to WAL.
            with open(self.path.with_suffix(".lock"), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.execute("PRAGMA foreign_keys = ON")
                self._migrate()
        except (OSError, sqlite3.Error) as error:
            self._db.close()
            words = f"{self.path} cannot be used as the run index: {reason(error)}"
            raise StoreError(words, f"move it away, or {ELSEWHERE}") from error
        except KforgeError:
            self._db.close()
            raise

    def _migrate(self) -> None:
        known = migrations()
        with self._transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > len(known):
                raise KforgeError(
                    f"{self.path} has version {version}, newer than this kforge knows ({len(known)})", "upgrade kforge"
                )
            for number, sql in known[version:]:
                for statement in _statements(sql):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE takes the write lock at once: a read that is later upgraded could fail with "database is locked".
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk ends the transaction by itself
                self._db.execute("ROLLBACK")
            raise

    def _write(self, sql: str, *values: Any) -> int:
        with storing(self.path, "the run's own log is complete up to here"), self._transaction():
            return self._db.execute(sql, values).rowcount

    def _read(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with storing(self.path, "move it away: runs themselves are in the folder `runs` beside it", "read"):
            return self._db.execute(sql, values).fetchall()

    def start_run(
        self, run: str, task: str, folder: Path | str, *, task_digest: str = "", target: str | None = None
    ) -> None:
        """Enter a run that begins now."""
        self._write(
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
        changed = self._write(
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

    def add_candidate(self, run: str, candidate: Candidate) -> None:
        """Enter a candidate of a run; entering it again changes nothing."""
        self._write(
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
        speedup = report.get("speedup") or {}
        self._write(
            "INSERT INTO evaluations (run, candidate, time, plan, status, verdict, speedup, ms, seconds, report)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            run,
            report["candidate"],
            time.time(),
            report["plan"],
            report["status"],
            report["verdict"],
            speedup.get("ratio"),
            (report.get("times_ms") or {}).get("candidate"),
            report.get("seconds"),
            encode(report),
        )

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
        self._write(
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
        rows = self._read(
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
        rows = self._read("SELECT id, folder FROM runs WHERE finished IS NULL")
        return [(row["id"], Path(row["folder"])) for row in rows]

    def evaluations(self, module: str) -> list[EvaluationRow]:
        """Every evaluation of candidates whose module has this file name, newest first."""
        rows = self._read(
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
        rows = self._read(
            "SELECT source, count(*) AS times_followed, count(achieved) AS times_timed,"
            " avg(CASE WHEN achieved IS NOT NULL THEN (expected_low + expected_high) / 2 END) AS expected,"
            " avg(achieved) AS achieved FROM ledger GROUP BY source ORDER BY source"
        )
        return [LedgerRow(**row) for row in rows]

    def close(self) -> None:
        """Closes the file; the index cannot be used afterwards."""
        self._db.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _statements(sql: str) -> Iterator[str]:
    """The single statements of a migration (executescript would commit the surrounding transaction)."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise KforgeError(f"migration ends inside a statement: {statement.strip()[:60]}")
