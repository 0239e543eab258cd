"""A folder of tasks whose results are appended to a file, a row a task: `kforge bench DIR --out rows.jsonl`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError, NoCandidate, UsageError

if TYPE_CHECKING:
    from kforge.environment.batch import Line
    from kforge.environment.suite import Row
    from kforge.kernel.candidate import Candidate


def parse_part(text: str) -> tuple[int, int]:
    """ "2/3" as (2, 3): the second of three shards. UsageError for anything else."""
    match = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(f"--part {text}: not a shard", "K/N with 1 <= K <= N, as in 2/3")
    return int(match[1]), int(match[2])


def suite_lines(folder: Path, part: tuple[int, int], device: str, **asked: Any) -> Iterator[Line]:
    """A job for every task below `folder` that is in this shard: its pairs, and tasks without a candidate, which get
    the engine's first one.

    asked: plan, arch, energy of every job. A task that gives no job is a line with an error, never the end of all.
    """
    from kforge.environment.batch import Line, make_job
    from kforge.environment.suite import find_pairs, lone_tasks
    from kforge.worker.parcel import pack_task, read_candidate

    tasks = lone_tasks(folder)
    found: list[tuple[str, Path, Path | None]] = [(name, op, None) for name, op in tasks]
    if not tasks or any(folder.rglob("*_kforge.py")):
        found += [(pair.name, pair.op, pair.module) for pair in find_pairs(folder)]
    first, shards = part
    for name, op, module in sorted(found)[first - 1 :: shards]:
        about = {"op": str(op), "candidate": str(module) if module else "engine"}
        try:
            candidate = read_candidate(module) if module is not None else engine_candidate(op, device, asked["arch"])
            yield Line(name, make_job(name, pack_task(op), candidate, **asked), about)
        except KforgeError as error:
            yield Line(name, None, about, error)


def engine_candidate(op: Path, device: str, arch: str | None) -> Candidate:
    """The engine's best guess for a task. NoCandidate names the operator that no kernel covers."""
    from kforge.engine import propose
    from kforge.kernel import target_arch
    from kforge.task import capture, load_task, resolve_device

    place = resolve_device(device)
    task = load_task(op)
    captured = capture(task, device=place)
    if captured.graph_module is None:
        raise NoCandidate(f"{op.name} cannot be captured: {captured.failure}", operator="capture")
    return next(
        iter(propose(task, captured, arch=arch or target_arch(None if place == "cpu" else place), device=place))
    )


def rows_of(path: Path) -> list[Row]:
    """Every result in a file of reports, the last one for a name, sorted by name; lines of other kinds are no rows."""
    from kforge.environment.json import from_json
    from kforge.environment.report import Report
    from kforge.environment.suite import Row

    rows: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            item = json.loads(line)
            report = from_json(Report, item["report"]) if item.get("report") else None
            words = str((item.get("error") or {}).get("message", ""))
            rows[item["id"]] = Row(item["id"], worker=item.get("worker", ""), report=report, error=words)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return [rows[name] for name in sorted(rows)]
