"""The results of an earlier run as a file, and what became worse since: statuses, and speed-ups outside the noise.

Speed is compared as the speed-up over the baseline of the same run, so that a slower clock moves both sides of it, and
only on the same GPU model. A suspicion is confirmed by whoever runs the pair again: `compare` is asked twice.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge.environment.json import from_json, to_json
from kforge.environment.report import Report, Speedup, Status
from kforge.environment.suite import Row
from kforge.errors import UsageError
from kforge.profiling.statistics import Ratio, verdict

SCHEMA = 1
_RANK = {"verified": 2, "built": 1}


@dataclass(frozen=True)
class Entry:
    """What is kept of one result. times_ms: medians of the first variant, for people."""

    name: str
    target: str
    status: str
    verdict: str = "untimed"
    candidate: str = ""
    plan: str = ""
    speedup: Speedup | None = None
    times_ms: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Change:
    """One difference to the earlier run. kind: status, slowdown (both regressions), faster, new, missing, elsewhere."""

    name: str
    kind: str
    detail: str

    @property
    def regression(self) -> bool:
        """Whether the gate must fail for it, once it is confirmed."""
        return self.kind in ("status", "slowdown")


def entry_of(row: Row) -> Entry:
    """A row as it is kept."""
    report = row.report
    if report is None:
        return Entry(row.name, "", "error")
    return Entry(
        row.name,
        report.target,
        report.status.value,
        report.verdict.value,
        report.candidate,
        report.plan,
        report.speedup,
        dict(report.times_ms),
    )


def check_path(path: Path) -> None:
    """UsageError where `save` could not write: before the work, not after it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise UsageError(f"{path} is a folder", "give a file with --save")
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "choose another file with --save") from error


def save(path: Path, rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """Write the rows as a file for `load`, whole or not at all. about: versions and plan, for people."""
    data = {"schema": SCHEMA, **about, "entries": [to_json(entry_of(row)) for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=".kforge-", dir=path.parent)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(json.dumps(data, indent=1) + "\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path) -> list[Entry]:
    """The entries of a saved run. UsageError for what is none."""
    try:
        data = json.loads(path.read_text())
        schema, items = int(data["schema"]), data["entries"]
        entries = [_entry(item) for item in items]
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {path}", "make it with --save on a good commit") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved run: {error}", "make it with --save on a good commit") from error
    if schema > SCHEMA:
        raise UsageError(f"{path} has schema {schema}, this version reads up to {SCHEMA}", "upgrade kforge")
    return entries


def _entry(item: Mapping[str, Any]) -> Entry:
    speedup = from_json(Speedup, item["speedup"]) if item.get("speedup") else None
    times = {str(k): float(v) for k, v in (item.get("times_ms") or {}).items()}
    sizes = (speedup.ratio, *speedup.ci95) if speedup else ()
    if not all(math.isfinite(x) and x > 0.0 for x in sizes) or (speedup and not 0.0 <= speedup.noise < math.inf):
        raise ValueError(f"a speed-up that is none: {speedup}")
    if item["status"] not in (*Status, "error"):
        raise ValueError(f"unknown status {item['status']!r}")
    texts = {name: str(item.get(name, "")) for name in ("verdict", "candidate", "plan")}
    return Entry(str(item["name"]), str(item["target"]), str(item["status"]), speedup=speedup, times_ms=times, **texts)


def compare(before: Sequence[Entry], rows: Sequence[Row]) -> list[Change]:
    """What differs, in order of name. Pairs that were not run are "missing", those without an entry "new"."""
    known: dict[str, list[Entry]] = {}
    for entry in before:
        known.setdefault(entry.name, []).append(entry)
    changes = []
    for row in rows:
        old = known.get(row.name)
        if old is None:
            changes.append(Change(row.name, "new", f"no earlier result; now {row.status}"))
            continue
        same = next((entry for entry in old if entry.target == row.target), None)
        change = _change(row, same or old[0], comparable=same is not None)
        if change is not None:
            changes.append(change)
    run = {row.name for row in rows}
    changes += [
        Change(name, "missing", f"was {old[0].status}, not run now") for name, old in known.items() if name not in run
    ]
    return sorted(changes, key=lambda change: (not change.regression, change.name))


def _change(row: Row, old: Entry, comparable: bool) -> Change | None:
    if _RANK.get(row.status, 0) < _RANK.get(old.status, 0):
        why = row.error or (row.report.failure if row.report else "")
        return Change(row.name, "status", f"{old.status} -> {row.status}" + (f": {why.splitlines()[0]}" if why else ""))
    if row.report is None or old.speedup is None:
        return None
    if not comparable:
        return Change(row.name, "elsewhere", f"timed on {old.target}, now on {row.target}: speeds are not compared")
    new = row.report.speedup
    if new is None:
        lost = f"was timed ({old.speedup.ratio:.2f}x), now {row.report.verdict.value}"
        return Change(row.name, "status", lost) if row.status == old.status == "verified" else None
    said = verdict(_of(old.speedup, new), math.hypot(old.speedup.noise, new.noise))
    if said not in ("slower", "faster"):
        return None
    return Change(row.name, "slowdown" if said == "slower" else "faster", _words(old, row.report, new))


def _of(old: Speedup, new: Speedup) -> Ratio:
    """New speed-up over old; the interval is that of two independent logarithms."""
    ratio = new.ratio / old.ratio
    half = math.hypot(*(math.log(s.ci95[1] / s.ci95[0]) / 2 for s in (old, new)))
    return Ratio(ratio, ratio * math.exp(-half), ratio * math.exp(half))


def _words(old: Entry, report: Report, new: Speedup) -> str:
    assert old.speedup is not None
    text = f"{old.speedup.ratio:.3f}x over {old.speedup.vs} -> {new.ratio:.3f}x over {new.vs}"
    times = old.times_ms or {}
    parts = [
        f"{name} {times[name]:.4g} -> {report.times_ms[name]:.4g} ms"
        for name in dict.fromkeys(("candidate", old.speedup.vs))
        if name in times and name in report.times_ms
    ]
    return text + (f" ({', '.join(parts)})" if parts else "")
