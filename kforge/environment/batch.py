"""A file of jobs, one JSON object a line, made into jobs for a fleet; reports of an earlier run, for going on after it.

A line: {"op": "softmax.py", "candidate": "a/softmax_kforge.py", "plan": "quick", "tag": "...", "id": "..."}. Paths are
relative to the file's folder. A line that is no job is an error of that line, never of the whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kforge.config import parse_arch
from kforge.environment.inputs import PLANS
from kforge.environment.suite import ENDING
from kforge.errors import KforgeError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.worker import wire
from kforge.worker.fleet import Job
from kforge.worker.manifest import manifest
from kforge.worker.parcel import Parcel, candidate_as_json, pack_task, read_candidate

FIELDS = ("id", "op", "candidate", "plan", "tag", "timing", "tolerance", "energy", "arch")


@dataclass(frozen=True)
class Line:
    """One line of the file. job: None where `error` says what is wrong. about: op, candidate and tag as written."""

    id: str
    job: Job | None = None
    about: dict[str, Any] = field(default_factory=dict, hash=False)
    error: KforgeError | None = None

    @property
    def key(self) -> str:
        """Hash of all that the job is: a report of the same id and key need not be made again."""
        body = self.job.body if self.job else {}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def make_job(id: str, parcel: Parcel, module: Path | Candidate, **options: Any) -> Job:
    """An evaluation of a candidate, or of the one in the file `module`, as a fleet takes it.

    options: plan, arch, timing, tolerance, energy, place; None leaves one out.
    """
    place = options.pop("place", None)
    candidate = read_candidate(module) if isinstance(module, Path) else module
    body = {
        "task": {**parcel.as_json(), "manifest": manifest()},
        "candidate": candidate_as_json(candidate),
        **{name: value for name, value in options.items() if value is not None},
    }
    if len(wire.encode(body)) > wire.LINE_BYTES - 4 * wire.ID_CHARACTERS:
        raise UsageError(
            f"{candidate.module} and its task are over {wire.LINE_BYTES >> 20} MiB of sources", "none is sent"
        )
    return Job(id, body, parcel.digest, place)


def read_lines(path: Path, plan: str | None = None, arch: str | None = None) -> Iterator[Line]:
    """Every line of the file that is not blank, in order. id: the line's own, else its number. UsageError: no file.

    plan and arch: for lines that name none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not UTF-8 at byte {error.start}"
        raise UsageError(f"{path} cannot be read: {why}", "one JSON object a line, see docs/bench.md") from error
    parcels: dict[Path, Parcel] = {}
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() cuts at U+2028 within a text too
        if line.strip():
            made = _line(number, line, path.parent, parcels, {"plan": plan, "arch": arch})
            if made.id in seen:
                made = Line(f"{number}", error=UsageError(f"line {number}: id {made.id!r} was used before"))
            seen.add(made.id)
            yield made


def _line(number: int, line: str, folder: Path, parcels: dict[Path, Parcel], defaults: dict[str, Any]) -> Line:
    name, about = str(number), {}
    try:
        data = json.loads(line)
        if not isinstance(data, dict):
            raise UsageError("not a JSON object")
        wanted = str(data.get("id", number))
        if not 0 < len(wanted) <= wire.ID_CHARACTERS:
            raise UsageError(f"id has {len(wanted)} characters", f"an id has 1 to {wire.ID_CHARACTERS}")
        name, about = wanted, {key: data[key] for key in ("op", "candidate", "tag") if key in data}
        return Line(name, _job(name, data, folder, parcels, defaults), about)
    except (ValueError, RecursionError) as error:
        return Line(name, None, about, UsageError(f"line {number}: not JSON: {error}"))
    except OSError as error:  # a name that is too long
        return Line(name, None, about, UsageError(f"line {number}: {error.strerror}: {str(error.filename)[:60]} ..."))
    except KforgeError as error:
        return Line(name, None, about, type(error)(f"line {number}: {error.message}", error.hint))


def _job(name: str, data: dict[str, Any], folder: Path, parcels: dict[Path, Parcel], defaults: dict[str, Any]) -> Job:
    if unknown := sorted(set(data) - set(FIELDS)):
        raise UsageError(f"unknown field {unknown[0]!r}", f"fields: {', '.join(FIELDS)}")
    for key in ("op", "candidate"):
        if not isinstance(data.get(key), str):
            raise UsageError(f"{key} is missing", "a job names an op and a candidate")
    if data.get("plan") not in (None, *PLANS):
        raise UsageError(f"unknown plan {data['plan']!r}", f"available: {', '.join(PLANS)}")
    if "arch" in data:
        parse_arch(str(data["arch"]))
    op, module = folder / data["op"], folder / data["candidate"]
    if module.is_dir():
        found = sorted(module.glob(f"*{ENDING}"))
        if len(found) != 1:
            raise UsageError(f"{data['candidate']} holds {len(found)} *{ENDING}", "name the candidate's module file")
        module = found[0]
    if not module.is_file():
        raise UsageError(f"no such file: {data['candidate']}")
    if op not in parcels:
        parcels[op] = pack_task(op)
    options = defaults | {key: data[key] for key in ("plan", "timing", "tolerance", "energy", "arch") if key in data}
    return make_job(name, parcels[op], module, **options)


def finished(path: Path) -> dict[str, str]:
    """id -> key of the reports in an earlier output; a torn last line is cut off. What ended in an error is absent.

    UsageError for a file with other lines than those of a batch.
    """
    if not path.is_file():
        return {}
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
    done = {}
    for number, line in enumerate(data[:whole].splitlines(), start=1):
        try:
            item = json.loads(line)
            if isinstance(item.get("report"), dict) and "id" in item:
                done[str(item["id"])] = str(item.get("key", ""))
        except (ValueError, AttributeError) as error:
            raise UsageError(f"{path}:{number}: not a line of reports", "choose another file with --out") from error
    return done
