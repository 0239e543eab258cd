"""`kforge bench`: many evaluations. Candidates of one task side by side, a suite of pairs, or a file of jobs."""

from __future__ import annotations

import fcntl
import json as jsonlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from kforge.cli import options, output, workers
from kforge.cli.bench_suite import parse_part, rows_of, suite_lines
from kforge.errors import KforgeError, ProtocolError, UsageError

if TYPE_CHECKING:
    from kforge.environment.batch import Line
    from kforge.environment.regression import Change
    from kforge.environment.suite import Row
    from kforge.worker.fleet import Job, Outcome

Paths = Annotated[list[Path], typer.Argument(metavar="OP.PY CANDIDATE.PY... | DIR | JOBS.JSONL", help="What to judge.")]


@dataclass(frozen=True)
class _Item:
    """One row to be made: its name, its class, and its job without a place."""

    name: str
    group: str
    job: Job


@output.command
def bench(
    out: output.Output,
    paths: Paths,
    plan: options.Plan = None,
    device: options.Device = None,
    arch: options.Arch = None,
    worker: workers.Commands = None,
    workers_: workers.Count = None,
    ray: workers.Ray = None,
    each: Annotated[bool, typer.Option("--each", help="Every job on every worker, side by side.")] = False,
    against: Annotated[Path | None, typer.Option("--against", help="Exit 1 if worse than this saved run.")] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Save this run for a later --against.")] = None,
    energy: Annotated[bool, typer.Option("--energy", help="Measure energy per call (seconds more each).")] = False,
    objective: Annotated[str, typer.Option("--objective", help="What is best: speed or energy.")] = "speed",
    results: Annotated[Path | None, typer.Option("--out", help="Append a row a task there (DIR, JOBS.JSONL).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Skip what --out already holds.")] = False,
    part: Annotated[str, typer.Option("--part", help="With DIR --out: one shard of its tasks, as in 2/3.")] = "1/1",
    order: Annotated[str, typer.Option("--order", help="A batch's reports: done (as they come) or job.")] = "done",
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Judge many: candidates of one task side by side, a folder of pairs (a suite), or a file of jobs (a batch)."""
    from kforge import config

    settings = options.settings()
    chosen_plan = config.parse_plan(plan) if plan else settings.plan
    chosen_device = config.parse_device(device) if device else settings.device
    chosen_arch = options.parse_arch(arch, settings)
    where = workers.Where(chosen_device, chosen_arch, tuple(worker or ()), workers_, ray)
    if len(paths) == 1 and paths[0].suffix == ".jsonl":
        if each or against or save:
            raise UsageError("--each, --against and --save are for suites and comparisons", "leave them out")
        return _batch(out, paths[0], where, _Batch(results, resume, order, chosen_plan, chosen_arch))
    if len(paths) == 1 and paths[0].is_dir() and results:
        if each or against or save:
            raise UsageError("--each, --against and --save go without --out", "leave them out")
        batch = _Batch(results, resume, order, chosen_plan, chosen_arch)
        shard = parse_part(part)
        lines = suite_lines(
            paths[0],
            shard,
            chosen_device,
            plan=chosen_plan,
            arch=chosen_arch,
            energy=energy or objective == "energy" or None,
        )
        return _appended(out, paths[0], list(lines), where, batch)
    if results or resume or order != "done" or part != "1/1":
        words = "--out, --resume, --order and --part are for a file of jobs, or a folder with --out"
        raise UsageError(words, "give a .jsonl file, or a folder and --out")
    title, items = _items(paths, plan=chosen_plan, arch=chosen_arch, energy=energy or objective == "energy" or None)
    return _table(out, title, items, where, _Gate(against, save, each, chosen_plan, objective))


# candidates and suites


@dataclass(frozen=True)
class _Gate:
    against: Path | None
    save: Path | None
    each: bool
    plan: str
    objective: str

    def __post_init__(self) -> None:
        if self.objective not in ("speed", "energy"):
            raise UsageError(f"--objective {self.objective}: choose speed or energy")


def _items(paths: Sequence[Path], **asked: Any) -> tuple[str, list[_Item]]:
    """A title, and what is to be judged. asked: plan, arch, energy of every job."""
    from kforge.environment.batch import make_job
    from kforge.environment.suite import find_pairs
    from kforge.worker.parcel import pack_task

    if len(paths) == 1 and paths[0].is_dir():
        found = [(pair.name, pair.group, pack_task(pair.op), pair.module) for pair in find_pairs(paths[0])]
        title = str(paths[0])
    elif len(paths) > 1 and paths[0].suffix == ".py" and not paths[0].is_dir():
        parcel = pack_task(paths[0])
        modules = [options.read_candidate_path(path) for path in paths[1:]]
        names = _distinct(modules)
        found = [(name, "", parcel, module) for name, module in zip(names, modules, strict=True)]
        title = paths[0].name
    else:
        raise UsageError(
            f"nothing to compare in {' '.join(map(str, paths))}",
            "give op.py and candidates, a folder, or a .jsonl file",
        )
    jobs = [make_job(name, parcel, module, **asked) for name, _, parcel, module in found]
    return title, [_Item(name, group, job) for (name, group, _, _), job in zip(found, jobs, strict=True)]


def _distinct(modules: Sequence[Path]) -> list[str]:
    """Shortest endings of the paths that tell them apart; a number where the same file is given twice."""
    depth = 1
    while depth < 8 and len({module.parts[-depth:] for module in modules}) < len({*modules}):
        depth += 1
    names: list[str] = []
    for module in modules:
        name = "/".join(module.parts[-depth:]).removesuffix(".py")
        again = sum(1 for known in names if known.partition(" #")[0] == name)
        names.append(f"{name} #{again + 1}" if again else name)
    return names


def _table(out: output.Output, title: str, items: list[_Item], where: workers.Where, gate: _Gate) -> int:
    from kforge.cli.bench_text import changes_text, statistics_text, table_text
    from kforge.environment import regression
    from kforge.environment.suite import statistics
    from kforge.worker.manifest import manifest

    began = time.monotonic()
    before = regression.load(gate.against) if gate.against else None
    if gate.save is not None:
        regression.check_path(gate.save)
    rows: list[Row] = []
    changes: list[Change] = []
    with workers.fleet(where, len(items), _emit(out)) as (fleet, described):
        places = list(described) if gate.each else [None]
        wanted = [(item, place) for item in items for place in places]
        rows = _run(fleet, wanted)
        if before is not None:
            changes = regression.compare(before, rows)
            suspects = {change.name for change in changes if change.regression}
            if suspects:  # once more in fresh processes: a regression is confirmed or it is none
                output.narrate(f"worse than {gate.against}: {', '.join(sorted(suspects))}; judged once more")
                again = _run(fleet, [(item, place) for item, place in wanted if item.name in suspects])
                second = {c.name: c for c in regression.compare(before, again) if c.regression}
                changes = [c for c in changes if not c.regression or c.name in second]
                better = {(row.name, row.worker): row for row in again if row.name not in second}
                rows = [better.get((row.name, row.worker), row) for row in rows]
    if gate.save is not None:
        regression.save(gate.save, rows, {"suite": title, "plan": gate.plan, "versions": manifest()})
    several = len({row.worker for row in rows}) > 1
    figures = statistics(rows)
    best = _best(rows, gate.objective) if len({row.group for row in rows}) == 1 and _one_task(items) else None
    out.text(table_text(rows, several, colour=out.colour))
    out.text(statistics_text(figures))
    if best is not None:
        out.text(f"best by {gate.objective}: {best}")
    if before is not None:
        out.text(changes_text(changes, str(gate.against), colour=out.colour))
    regressed = any(change.regression for change in changes)
    right = all(row.status == "verified" for row in rows)
    out.result(
        {
            "bench": title,
            "plan": gate.plan,
            "workers": {name: d["target"] for name, d in described.items()},
            "rows": [_row_json(row) for row in rows],
            "statistics": figures,
            "best": best,
            "changes": [vars(change) | {"regression": change.regression} for change in changes],
            "saved": str(gate.save) if gate.save else None,
            "seconds": round(time.monotonic() - began, 3),
        }
    )
    passed = not regressed if before is not None else right
    return output.OK if passed else output.FAILED


def _one_task(items: Sequence[_Item]) -> bool:
    return len(items) > 1 and len({item.job.task for item in items}) == 1


def _best(rows: Sequence[Row], objective: str) -> str | None:
    """The name of the preferred one among the verified candidates that were timed."""
    from kforge.environment.verdict import better

    found: Row | None = None
    for row in rows:
        if row.report is None or row.status != "verified" or "candidate" not in row.report.times_ms:
            continue
        if found is None or (found.report is not None and better(row.report, found.report, objective)):
            found = row
    return found.name if found else None


def _run(fleet: Any, wanted: Sequence[tuple[_Item, str | None]]) -> list[Row]:
    """One row for each, in the order of `wanted`."""
    from kforge.environment.json import from_json
    from kforge.environment.report import Report
    from kforge.environment.suite import Row
    from kforge.worker.wire import ID_CHARACTERS

    names = [f"{n} {item.name}"[:ID_CHARACTERS] for n, (item, _) in enumerate(wanted)]
    jobs = [replace(item.job, id=name, place=place) for name, (item, place) in zip(names, wanted, strict=True)]
    rows: dict[str, Row] = {}
    messages = []
    for outcome in map(_checked, fleet.run(jobs)):
        number = int(outcome.job.id.partition(" ")[0])
        item = wanted[number][0]
        report = from_json(Report, outcome.report) if outcome.report else None
        error = "" if outcome.error is None else str(outcome.error["message"])
        if outcome.error is not None:
            messages.append({name: outcome.message.get(name) for name in ("error", "exit_code")})
        rows[outcome.job.id] = Row(item.name, item.group, outcome.worker, report, error)
        output.narrate(_progress(len(rows), len(jobs), item.name, outcome))
    said = {jsonlib.dumps(message, sort_keys=True): message for message in messages}
    if len(jobs) == len(messages) and len(said) == 1:  # all of them for one reason: the task's or the machine's
        raise KforgeError.of(next(iter(said.values())))
    return [rows[job.id] for job in jobs]


def _checked(outcome: Outcome) -> Outcome:
    """The outcome, an error in the place of a report that is none: that job's, not the end of the others."""
    from kforge.environment.json import from_json
    from kforge.environment.report import Report
    from kforge.worker import wire

    if outcome.report is None:
        return outcome
    try:
        from_json(Report, outcome.report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        words = f"worker {outcome.worker} sent a report that cannot be read: {error}"
        lost = ProtocolError(words, "use the same version of kforge on both sides")
        return replace(outcome, message=wire.failure(outcome.job.id, lost))
    return outcome


def _row_json(row: Row) -> dict[str, Any]:
    from kforge.environment.json import summary

    head = {"name": row.name, "class": row.group, "worker": row.worker}
    if row.report is None:
        return head | {"status": "error", "error": {"message": row.error}}
    return head | summary(row.report, proposer="user")


# batches


@dataclass(frozen=True)
class _Batch:
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


def _appended(out: output.Output, path: Path, lines: list[Line], where: workers.Where, batch: _Batch) -> int:
    """A folder as a batch; then the table of all rows that the file holds, those of earlier runs and shards too."""
    from kforge.cli.bench_text import statistics_text, table_text
    from kforge.environment.suite import statistics

    code = _batch(out, path, where, batch, lines)
    rows = rows_of(batch.out) if batch.out else []
    out.text(table_text(rows, len({row.worker for row in rows}) > 1, colour=out.colour))
    out.text(statistics_text(statistics(rows)))
    return code


def _batch(out: output.Output, path: Path, where: workers.Where, batch: _Batch, given: list[Line] | None = None) -> int:
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
            with workers.fleet(where, len(jobs), _emit(out)) as (fleet, _):
                outcomes = fleet.run([line.job for line in jobs.values() if line.job])
                for count, outcome in enumerate(map(_checked, outcomes), start=1):
                    failed += outcome.report is None
                    queue.put(outcome.job.id, _line_json(jobs[outcome.job.id], outcome))
                    output.narrate(_progress(count, len(jobs), outcome.job.id, outcome))
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
def _sink(out: output.Output, batch: _Batch) -> Iterator[Any]:
    """Where report lines go: stdout, or the file of --out, where each is on disk before the next is written."""
    if batch.out is None:

        def say(value: dict[str, Any]) -> None:
            if not out.message(value):
                raise KforgeError("nobody reads the reports any more", "with --out FILE --resume a batch can go on")

        yield say
        return
    from kforge.store.events import encode

    if batch.out.exists() and not batch.resume:
        raise UsageError(f"{batch.out} exists", "add --resume to go on with it, or choose another file")
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


def _emit(out: output.Output) -> Any:
    def emit(worker: str, job: str, kind: str, data: dict[str, Any]) -> None:
        out.event(kind, {"job": job, "worker": worker, **data})

    return emit


def _progress(number: int, count: int, name: str, outcome: Outcome) -> str:
    """One line on stderr for one result."""
    from kforge.cli.text import plain

    head = f"{number}/{count} {plain(name)}: "
    if outcome.report is None:
        return head + plain(f"error: {(outcome.error or {}).get('message', '')}")
    report = outcome.report
    words = [str(report["status"])]
    if report["verdict"] != "untimed":
        words.append(str(report["verdict"]))
    if report.get("speedup"):
        words.append(f"x{report['speedup']['ratio']:.2f}")
    return head + ", ".join(words) + f" ({report['seconds']:.1f} s)"
