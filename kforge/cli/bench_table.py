"""`kforge bench` as a table: candidates of one task side by side, or a suite of pairs, against a saved run or none."""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.cli import options, output, workers
from kforge.cli.bench_outcome import checked, emitting, progress_line
from kforge.errors import KforgeError, UsageError

if TYPE_CHECKING:
    from kforge.environment.regression import Change
    from kforge.environment.suite import Row
    from kforge.worker.fleet import Job


@dataclass(frozen=True)
class Item:
    """One row to be made: its name, its class, and its job without a place."""

    name: str
    group: str
    job: Job


@dataclass(frozen=True)
class Gate:
    """What a table is held against and where it is saved; every job on every worker (each); what is best."""

    against: Path | None
    save: Path | None
    each: bool
    plan: str
    objective: str

    def __post_init__(self) -> None:
        if self.objective not in ("speed", "energy"):
            raise UsageError(f"--objective {self.objective}: choose speed or energy")


def compared(paths: Sequence[Path], **asked: Any) -> tuple[str, list[Item]]:
    """A title, and what is to be judged. asked: plan, arch, energy of every job."""
    from kforge.environment.batch import make_job
    from kforge.environment.suite import find_pairs, lone_tasks
    from kforge.worker.parcel import pack_task

    if len(paths) == 1 and paths[0].is_dir():
        if alone := [name for name, _ in lone_tasks(paths[0])]:
            output.narrate(f"left out, without a candidate: {', '.join(alone)}; with --out the engine is asked for one")
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
    return title, [Item(name, group, job) for (name, group, _, _), job in zip(found, jobs, strict=True)]


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


def tabled(out: output.Output, title: str, items: list[Item], where: workers.Where, gate: Gate) -> int:
    """Judge every item, print the table, hold it against a saved run. The exit code."""
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
    with workers.fleet(where, len(items), emitting(out)) as (fleet, described):
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


def _one_task(items: Sequence[Item]) -> bool:
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


def _run(fleet: Any, wanted: Sequence[tuple[Item, str | None]]) -> list[Row]:
    """One row for each, in the order of `wanted`."""
    from kforge.environment.json import from_json
    from kforge.environment.report import Report
    from kforge.environment.suite import Row
    from kforge.worker.wire import ID_CHARACTERS

    names = [f"{n} {item.name}"[:ID_CHARACTERS] for n, (item, _) in enumerate(wanted)]
    jobs = [replace(item.job, id=name, place=place) for name, (item, place) in zip(names, wanted, strict=True)]
    rows: dict[str, Row] = {}
    messages = []
    for outcome in map(checked, fleet.run(jobs)):
        number = int(outcome.job.id.partition(" ")[0])
        item = wanted[number][0]
        report = from_json(Report, outcome.report) if outcome.report else None
        error = "" if outcome.error is None else str(outcome.error["message"])
        if outcome.error is not None:
            messages.append({name: outcome.message.get(name) for name in ("error", "exit_code")})
        rows[outcome.job.id] = Row(item.name, item.group, outcome.worker, report, error)
        output.narrate(progress_line(len(rows), len(jobs), item.name, outcome))
    said = {jsonlib.dumps(message, sort_keys=True): message for message in messages}
    if len(jobs) == len(messages) and len(said) == 1:  # all of them for one reason: the task's or the machine's
        raise KforgeError.of(next(iter(said.values())))
    return [rows[job.id] for job in jobs]


def _row_json(row: Row) -> dict[str, Any]:
    from kforge.environment.json import summary

    head = {"name": row.name, "class": row.group, "worker": row.worker}
    if row.report is None:
        return head | {"status": "error", "error": {"message": row.error}}
    return head | summary(row.report, proposer="user")
