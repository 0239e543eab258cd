"""`kforge bench` as a batch: a report line a job, to stdout or appended to a file that a later run goes on with."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kforge.cli import output, workers
from kforge.cli.bench_outcome import checked, emitting, progress_line
from kforge.cli.bench_suite import rows_of
from kforge.errors import KforgeError, UsageError

if TYPE_CHECKING:
    from kforge.environment.batch import Line
    from kforge.worker.fleet import Outcome


@dataclass(frozen=True)
class Batch:
    """Where report lines go and in which order; what a job that does not say is judged by."""

    out: Path | None
    resume: bool
    order: str
    plan: str
    arch: str | None

    def __post_init__(self) -> None:
        if self.order not in ("done", "job"):
            raise UsageError(f"--order {self.order}: choose done or job")
        if self.resume and self.out is None:
            raise UsageError("--resume needs --out", "a file that the shell opened for stdout cannot be read again")
        if self.out is not None and self.out.exists() and not self.resume:
            raise UsageError(f"{self.out} exists", "add --resume to go on with it, or choose another file")


def appended(out: output.Output, path: Path, lines: list[Line], where: workers.Where, batch: Batch) -> int:
    """A folder as a batch; then the table of all rows that the file holds, those of earlier runs and shards too."""
    from kforge.cli.bench_text import statistics_text, table_text
    from kforge.environment.suite import statistics

    code = batched(out, path, where, batch, lines)
    rows = rows_of(batch.out) if batch.out else []
    out.text(table_text(rows, len({row.worker for row in rows}) > 1, colour=out.colour))
    out.text(statistics_text(statistics(rows)))
    return code


def batched(out: output.Output, path: Path, where: workers.Where, batch: Batch, given: list[Line] | None = None) -> int:
    """Judge every line of a file (or those given) that --out does not hold yet. The exit code."""
    from kforge.environment.batch import finished, read_lines

    began = time.monotonic()
    lines = list(read_lines(path, batch.plan, batch.arch)) if given is None else given
    done = finished(batch.out) if batch.resume and batch.out else {}
    left = [line for line in lines if done.get(line.id) != line.key or line.error]
    jobs = {line.id: line for line in left if line.job is not None}
    failed = 0
    with _sink(out, batch) as write:
        queue = _Ordered([line.id for line in left], write, batch.order == "job")
        for line in left:
            if line.error is not None:
                failed += 1
                output.narrate(output.error_line(line.error))
                queue.put(line.id, {"id": line.id, **line.about, **line.error.as_dict()})
        if jobs:
            with workers.fleet(where, len(jobs), emitting(out)) as (fleet, _):
                outcomes = fleet.run([line.job for line in jobs.values() if line.job])
                for count, outcome in enumerate(map(checked, outcomes), start=1):
                    failed += outcome.report is None
                    queue.put(outcome.job.id, _line_json(jobs[outcome.job.id], outcome))
                    output.narrate(progress_line(count, len(jobs), outcome.job.id, outcome))
    out.result(
        {
            "bench": str(path),
            "jobs": len(lines),
            "skipped": len(lines) - len(left),
            "reports": len(left) - failed,
            "errors": failed,
            "seconds": round(time.monotonic() - began, 3),
        }
    )
    return output.FAILED if failed else output.OK


def _line_json(line: Line, outcome: Outcome) -> dict[str, Any]:
    head = {"id": line.id, **line.about, "worker": outcome.worker, "seconds": outcome.seconds}
    if outcome.report is None:
        return head | {"error": outcome.error}
    return head | {"key": line.key, "report": outcome.report}


class _Ordered:
    """Passes results on as they come, or each when all before it have come."""

    def __init__(self, ids: Sequence[str], write: Any, ordered: bool) -> None:
        self._ids, self._write, self._ordered = list(ids), write, ordered
        self._held: dict[str, dict[str, Any]] = {}

    def put(self, id: str, value: dict[str, Any]) -> None:
        if not self._ordered:
            self._write(value)
            return
        self._held[id] = value
        while self._ids and self._ids[0] in self._held:
            self._write(self._held.pop(self._ids.pop(0)))


@contextmanager
def _sink(out: output.Output, batch: Batch) -> Iterator[Any]:
    """Where report lines go: stdout, or the file of --out, where each is on disk before the next is written."""
    if batch.out is None:

        def say(value: dict[str, Any]) -> None:
            if not out.message(value):
                raise KforgeError("nobody reads the reports any more", "with --out FILE --resume a batch can go on")

        yield say
        return
    from kforge.store.events import encode

    try:
        batch.out.parent.mkdir(parents=True, exist_ok=True)
        file: IO[str] = batch.out.open("a", encoding="utf-8")
    except OSError as error:
        raise KforgeError(f"{batch.out} cannot be written: {error.strerror}") from error
    with file:
        _only_writer(file, batch.out)

        def write(value: dict[str, Any]) -> None:
            file.write(encode(value) + "\n")
            file.flush()
            os.fsync(file.fileno())

        yield write


def _only_writer(file: IO[str], path: Path) -> None:
    """UsageError where another batch is writing to this file; it would make every report twice."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"{path} is being written by another batch", "wait for it, or choose another file") from error
    except OSError:
        return  # a file system without locks
