"""Reports as JSON and back, and the one object that `--json` prints (DESIGN, "Commands"). No judging here."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from kforge.environment.report import Report, Verdict

SCHEMA = 1
T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Dataclasses, enums, tuples, dicts and scalars as JSON values; NaN and infinities become strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form in a report")


def from_json(kind: type[T], data: Any) -> T:
    """The inverse of `to_json` for a dataclass type. Unknown keys (a newer writer) are ignored, absent ones default."""
    return typing.cast(T, _decode(kind, data))


def dumps(report: Report) -> str:
    """The whole report as one line of JSON, with its schema version."""
    return json.dumps({"schema": SCHEMA, **to_json(report)}, separators=(",", ":"))


def loads(text: str) -> Report:
    """The inverse of `dumps`. ValueError for a report written by a newer schema."""
    data = json.loads(text)
    if data.get("schema", SCHEMA) > SCHEMA:
        raise ValueError(f"report has schema {data['schema']}, this version reads up to {SCHEMA}")
    return from_json(Report, data)


def summary(
    report: Report,
    *,
    files: typing.Sequence[str] = (),
    proposer: str = "",
    evaluations: int = 1,
    seconds: float | None = None,
    usd: float | None = 0.0,
) -> dict[str, Any]:
    """The last line of `--json`. Without a GPU target: target `emulator`, verdict `untimed`, no times, no speed-up.

    seconds: of the whole command (default: the report's own). usd: what chat models cost, None: unknown.
    """
    timed = report.verdict is not Verdict.UNTIMED
    out: dict[str, Any] = {
        "task": f"{report.task}.py",  # the file's name, as profiles have it
        "status": report.status.value,
        "verdict": report.verdict.value,
        "target": report.target,
    }
    if timed:
        out["speedup"] = to_json(report.speedup)
        out["times_ms"] = dict(report.times_ms)
        out["confirmed"] = report.confirmed
        out["context"] = to_json(report.context)
        out["costs"] = to_json(report.costs)
    out["rms_error"] = to_json(report.error)
    out["memory_ratio"] = report.memory_ratio
    if report.roofline is not None:
        out["roofline"] = {k: v for k, v in to_json(report.roofline).items() if k in ("bound", "floor_ms", "achieved")}
    else:
        out["roofline"] = None
    out["plan"] = report.plan
    out["cases"] = {"run": len(report.cases), "planned": report.planned, "dropped": report.dropped}
    out["builds"] = [to_json(build) for build in report.builds]
    out["never_launched"] = [build.name for build in report.builds if build.launches == 0]
    out["precision_class"] = report.precision_class
    out["gates"] = [
        {"name": g.name, "passed": g.passed} | ({"detail": g.detail} if g.detail else {}) for g in report.gates
    ]
    out["detectors"] = [{"name": d.name, "fired": d.fired} for d in report.detectors]
    out["not_tested"] = list(report.not_tested)
    out["no_room"] = report.no_room
    out["degenerate"] = report.degenerate
    if report.backward is not None:
        out["backward"] = to_json(report.backward)
    if report.repro:
        out["repro"] = report.repro
    out |= {
        "files": list(files),
        "proposer": proposer,
        "evaluations": evaluations,
        "seconds": round(report.seconds if seconds is None else seconds, 3),
        "usd": usd,
    }
    return out


def _decode(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if data is None and type(None) in options:
            return None
        return _decode(next(o for o in options if o is not type(None)), data)
    if origin is tuple:
        args = typing.get_args(kind)
        each = [args[0]] * len(data) if len(args) == 2 and args[1] is Ellipsis else args
        return tuple(_decode(k, v) for k, v in zip(each, data, strict=True))
    if origin is dict:
        return {k: _decode(typing.get_args(kind)[1], v) for k, v in data.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind) if f.name in data]
        return kind(**{name: _decode(hints[name], data[name]) for name in names})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return float(data) if kind is float else data
