"""Nsight Systems over one call: found, started on `standalone.py`, its trace of the device read as CSV.

Runs in a child in phase *build*, whose sandbox it inherits, as compute-sanitizer does (sanitizer.py).
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kforge.worker.sanitizer import Job

_PROFILE = (
    "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true",
    "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
)  # fmt: skip
_STATS = ("stats", "--report", "cuda_gpu_trace", "--format", "csv", "--force-export=true", "--output", "-")
_WORDS = 300


def find() -> Path | None:
    """nsys on PATH, of a toolkit, or under /opt."""
    from kforge.kernel.build.toolchain import toolkit_roots

    found = shutil.which("nsys")
    places = [Path(found)] if found else []
    places += [root / "bin" / "nsys" for root in toolkit_roots()]
    places += sorted(Path("/opt/nvidia/nsight-systems").glob("*/bin/nsys"), reverse=True)
    return next((place.resolve() for place in places if os.access(place, os.X_OK)), None)


def run(job: Job, limit_s: float) -> dict[str, Any]:
    """events: what the device did in one call, in order; skipped: why nothing is known, or the empty string."""
    program = find()
    if program is None:
        return {"events": [], "skipped": "nsys is not here"}
    report, done = job.folder / "timeline", job.folder / "timeline.done"
    target = [sys.executable, "-m", "kforge.worker.standalone", str(job.folder), str(done), "marked"]
    environment = {**os.environ, "LD_PRELOAD": str(job.naming)}
    try:
        first = subprocess.run(
            [str(program), *_PROFILE, "--output", str(report), *target],
            env=environment, capture_output=True, text=True, timeout=limit_s, check=False,
        )  # fmt: skip
        found = report.with_suffix(".nsys-rep")
        if not found.is_file():
            return {"events": [], "skipped": _last(first.stderr + first.stdout, first.returncode)}
        second = subprocess.run(
            [str(program), *_STATS, str(found)], capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"events": [], "skipped": f"no end after {limit_s:g} s"}
    events = parse(second.stdout)
    return {"events": events, "skipped": "" if events else _last(second.stderr + second.stdout, second.returncode)}


def parse(text: str) -> list[dict[str, Any]]:
    """The report cuda_gpu_trace as CSV: name, start and us of each row, in order; lines before its head are skipped."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("Start")), None)
    if start is None:
        return []
    rows = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    found = []
    for row in rows:
        named = {str(key).split(" (")[0]: value for key, value in row.items()}
        try:
            begin, length = (float(str(named[key]).replace(",", "")) / 1e3 for key in ("Start", "Duration"))
        except (KeyError, ValueError):
            continue
        found.append({"name": str(named.get("Name"))[:_WORDS], "start": begin, "us": length})
    return sorted(found, key=lambda event: event["start"])


def _last(text: str, code: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:_WORDS] if lines else f"exit code {code}"
