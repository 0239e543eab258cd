"""A verdict as a folder that can be handed on and run again: report, raw samples, sources, hashes, environment, seeds.

hashes.json lists the SHA-256 of every other file, and `digest` is the hash of that list: quote it beside the verdict.
It shows that a bundle is whole, not who made it. docs/bench.md describes the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kforge.config import parse_arch
from kforge.environment.json import dumps, loads, to_json
from kforge.environment.report import Report
from kforge.errors import KforgeError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.worker.manifest import manifest
from kforge.worker.parcel import Parcel, candidate_as_json, check_files, pack_task, parse_candidate

SCHEMA = 1
HASHES = "hashes.json"
OPTIONS = ("plan", "arch", "tolerance", "baseline", "context", "energy", "backward", "constraints")
CARRIED = ("baseline", "context")  # options "file.py:name" whose file travels in the bundle


@dataclass(frozen=True)
class Evidence:
    """A bundle that was read and is whole. options: plan, arch, tolerance, energy, and what CARRIED names."""

    task: Parcel
    candidate: Candidate
    report: Report
    options: Mapping[str, Any] = field(hash=False)
    made: Mapping[str, Any] = field(hash=False)
    extras: Mapping[str, str] = field(hash=False)
    digest: str

    @property
    def seed(self) -> int:
        """The judge's 64 bits from which every input follows."""
        return int(self.report.environment["seed"])

    def unpack(self, folder: Path) -> tuple[Path, Path, dict[str, Any]]:
        """Write the sources below `folder`: op.py, the candidate's module, the options with their files' new paths."""
        op = self.task.write(folder / "task")
        self.candidate.write(folder / "candidate")
        options = dict(self.options)
        for name, text in self.extras.items():
            path = folder / "extras" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in CARRIED:
            file, _, function = str(options.get(name) or "").rpartition(":")
            if file.endswith(".py"):
                options[name] = f"{folder / 'extras' / name / file}:{function}"
        return op, folder / "candidate" / self.candidate.module, options


def check_folder(folder: Path) -> None:
    """UsageError where a bundle cannot go: before the work, not after it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty", "give a new folder with --evidence")


def write(folder: Path, task: Parcel, candidate: Candidate, report: Report, options: Mapping[str, Any]) -> str:
    """Write the bundle, whole or not at all; returns its digest. KforgeError where `report` is of another candidate."""
    if report.candidate != candidate.digest:
        raise KforgeError("the candidate's files changed while it was judged", "judge it once more")
    check_folder(folder)
    options = {name: value for name, value in options.items() if value is not None}
    extras: dict[str, str] = {}
    for name in CARRIED:
        file, _, function = str(options.get(name) or "").rpartition(":")
        if file.endswith(".py"):
            parcel = pack_task(Path(file))
            extras |= {f"{name}/{key}": text for key, text in parcel.files.items()}
            options[name] = f"{parcel.entry}:{function}"
    described = {"schema": SCHEMA, "task": task.entry, "candidate": candidate_as_json(candidate) | {"files": None}}
    files = {
        "evidence.json": json.dumps(described | {"options": options}, indent=1),
        "report.json": dumps(report),
        "samples.json": json.dumps(_samples(report), indent=1),
        "environment.json": json.dumps(_environment(report), indent=1),
        **{f"task/{name}": text for name, text in task.files.items()},
        **{f"candidate/{name}": text for name, text in candidate.files.items()},
        **{f"extras/{name}": text for name, text in extras.items()},
    }
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}
    digest = _digest(hashes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".kforge-", dir=folder.parent))
    try:
        for name, text in files.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        (made / HASHES).write_text(json.dumps({"schema": SCHEMA, "digest": digest, "files": hashes}, indent=1))
        made.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        os.rename(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return digest


def read(folder: Path) -> Evidence:
    """A bundle, every file compared with its hash. UsageError (exit 2) for one that was changed or is none."""
    texts = _texts(folder)
    try:
        described = json.loads(texts["evidence.json"])
        if described["schema"] > SCHEMA:
            raise UsageError(
                f"{folder} has schema {described['schema']}, this version reads {SCHEMA}", "upgrade kforge"
            )
        candidate = parse_candidate(described["candidate"] | {"files": _below(texts, "candidate/")})
        if extras := _below(texts, "extras/"):
            check_files(extras, "extras")
        made = Evidence(
            task=Parcel.parse({"entry": described["task"], "files": _below(texts, "task/")}),
            candidate=candidate,
            report=loads(texts["report.json"]),
            options=described["options"],
            made=json.loads(texts["environment.json"]),
            extras=extras,
            digest=_digest({name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(texts.items())}),
        )
        if unknown := sorted(set(made.options) - set(OPTIONS)):
            raise ValueError(f"unknown option {unknown[0]!r}")
        if made.options.get("arch") is not None:
            parse_arch(str(made.options["arch"]))
        for name in CARRIED:
            file = str(made.options.get(name) or "").rpartition(":")[0]
            if file.endswith(".py") and f"{name}/{file}" not in extras:
                raise ValueError(f"the file of {name} is not in it")
        if made.seed < 0 or made.report.candidate != candidate.digest:
            raise ValueError("its report is of another candidate" if made.seed >= 0 else "its seed is negative")
        return made
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"{folder} is not an evidence bundle: {error}", "make one with --evidence") from error


def _texts(folder: Path) -> dict[str, str]:
    """Every listed file; what lies there without being listed is not read."""
    try:
        listed = json.loads((folder / HASHES).read_text(encoding="utf-8"))
        hashes = {str(name): str(value) for name, value in listed["files"].items()}
        digest = str(listed["digest"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder} is not an evidence bundle: no readable {HASHES}", "make one with --evidence"
        ) from error
    texts, wrong = {}, [HASHES] if digest != _digest(hashes) else []
    for name, wanted in hashes.items():
        path = folder / name
        try:
            data = path.read_bytes() if path.resolve().is_relative_to(folder.resolve()) else b""
            texts[name] = data.decode()
        except (OSError, UnicodeDecodeError):
            wrong.append(name)
            continue
        if hashlib.sha256(data).hexdigest() != wanted:
            wrong.append(name)
    if wrong:
        raise UsageError(f"{folder} was changed: {', '.join(wrong)} does not have its hash", "ask for a whole bundle")
    return texts


def _digest(hashes: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(sorted(hashes.items()))).encode()).hexdigest()


def _below(texts: Mapping[str, str], folder: str) -> dict[str, str]:
    return {name.removeprefix(folder): text for name, text in texts.items() if name.startswith(folder)}


def _samples(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "variant": variant.label,
            "side": side.name,
            "wrapper": side.wrapper,
            "unit": "ms",
            "samples": to_json(side.ms),
        }
        for variant in report.variants
        for side in variant.samples
    ]


def _environment(report: Report) -> dict[str, Any]:
    return {
        "target": report.target,
        "manifest": manifest(),
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **report.environment,
    }


def differences(old: Report, new: Report) -> list[str]:
    """What a second run found otherwise, in words: status, verdict, speed-up, cases, gates, detectors, versions."""
    found = []
    if old.target != new.target:
        found.append(f"target: {old.target} -> {new.target}")
    for name in ("status", "verdict"):
        before, after = getattr(old, name).value, getattr(new, name).value
        if before != after:
            found.append(
                f"{name}: {before} -> {after}" + (f" ({new.failure})" if name == "status" and new.failure else "")
            )
    if old.speedup and new.speedup and old.target == new.target:
        apart = old.speedup.ci95[1] < new.speedup.ci95[0] or new.speedup.ci95[1] < old.speedup.ci95[0]
        if apart:
            found.append(f"speed-up: {_interval(old)} -> {_interval(new)}: the intervals do not meet")
    found += _named("case", {c.label: c.passed for c in old.cases}, {c.label: c.passed for c in new.cases})
    found += _named("gate", {g.name: g.passed for g in old.gates}, {g.name: g.passed for g in new.gates})
    found += _named("detector", {d.name: d.fired for d in old.detectors}, {d.name: d.fired for d in new.detectors})
    for name in ("kforge", "torch", "python", "gpu_driver"):
        before, after = (report.environment.get(name) for report in (old, new))
        if before != after:
            found.append(f"{name}: {before} -> {after}")
    return found


def _interval(report: Report) -> str:
    assert report.speedup is not None
    low, high = report.speedup.ci95
    return f"{report.speedup.ratio:.3f}x ({low:.3f} to {high:.3f})"


def _named(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Outcomes that both have and that differ, and how many only one has (a plan runs while its time lasts)."""
    found = [f"{what} {name}: {old[name]} -> {new[name]}" for name in old if name in new and old[name] != new[name]]
    only = [name for name in old if name not in new], [name for name in new if name not in old]
    if any(only):
        found.append(f"{what}s run only then: {len(only[0])}, only now: {len(only[1])}")
    return found
