"""Nsight Compute over a replay of the candidate's launches: counters, and samples by instruction and source line.

Clocks are left alone (--clock-control none). Metric names are asked of the installed version once and kept in the
cache. The report is read through NVIDIA's own reader where it is here, as CSV else (then without source lines).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kforge.kernel.build.cache import cache_root
from kforge.kernel.build.toolchain import toolkit_roots
from kforge.kernel.emulator.access import Access
from kforge.profiling.evidence import Sampled
from kforge.profiling.sources import Unavailable
from kforge.profiling.sources.ncu_metrics import choose
from kforge.worker.limits import descendants

TIMEOUT_S = 60.0
WALLS = ("full", "files")  # of worker/replay.py; the second where counters do not work behind the first
DENIED = re.compile(r"ERR_NVGPUCTRPERM|permission", re.I)
REMEDY = (
    "an administrator allows counters for all users with the driver option NVreg_RestrictProfilingToAdminUsers=0"
    " (in /etc/modprobe.d, then reload the driver), or starts the container with the capability SYS_ADMIN or PERFMON"
)


@dataclass(frozen=True)
class Profiled:
    """One launch under ncu. counters by short name; sampled and access need the official reader."""

    kernel: str
    counters: dict[str, float]
    sampled: tuple[Sampled, ...] = ()
    access: tuple[Access, ...] = ()


@dataclass(frozen=True)
class Report:
    """What one run of ncu gave. walls: those that stood around the replay."""

    launches: tuple[Profiled, ...]
    walls: str
    reader: str
    notes: tuple[str, ...] = field(default_factory=tuple)


class _Unknown(Unavailable):
    """ncu refuses some of the metrics that it was asked for."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__("ncu", f"ncu refuses the metrics {', '.join(sorted(names))}")
        self.names = names


@lru_cache(maxsize=1)
def find_ncu() -> Path:
    """ncu on PATH or of a toolkit. Unavailable where there is none."""
    found = shutil.which("ncu")
    places = [Path(found)] if found else []
    for root in toolkit_roots():
        places += [root / "bin" / "ncu", *sorted(root.glob("nsight-compute*/ncu"), reverse=True)]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    for place in places:
        if place.is_file():
            return place
    raise Unavailable("ncu", "Nsight Compute (ncu) is not here", "install a CUDA toolkit, or nsight-compute")


def available_metrics(chip: str) -> tuple[str, ...]:
    """Base names of the metrics that the installed ncu has for a chip ("gh100"); asked once, then from the cache."""
    ncu = find_ncu()
    version = re.sub(r"\W+", "-", _run([str(ncu), "--version"], 20).stdout.strip().splitlines()[-1])
    path = cache_root() / "ncu" / f"{version}-{chip}.json"
    if path.is_file():
        return tuple(json.loads(path.read_text()))
    done = _run([str(ncu), "--query-metrics", *(["--chip", chip] if chip else [])], TIMEOUT_S)
    names = sorted({m[1] for m in re.finditer(r"^\s*([a-z0-9]+__\w+)", done.stdout, re.M)})
    if not names:
        raise Unavailable("ncu", f"ncu lists no metrics: {_last_words(done)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(names))
    fresh.replace(path)
    return tuple(names)


def run(folder: Path, device: str, chip: str = "", timeout_s: float = TIMEOUT_S) -> Report:
    """Profile the launches written in `folder` (worker/profiled.py). Unavailable when ncu or counters are.

    device: "cuda:N". Each wall is tried in turn; the one that worked is remembered in the cache.
    """
    metrics = list(choose(available_metrics(chip)).values())
    memory = cache_root() / "ncu" / "walls"
    known = memory.read_text() if memory.is_file() else ""
    order = sorted(WALLS, key=lambda w: w != known)
    failures: list[Unavailable] = []
    for walls in order:
        try:
            try:
                report = _once(folder, device, walls, metrics, timeout_s)
            except _Unknown as error:  # listed, and yet not to be had with this suffix
                metrics = [name for name in metrics if name not in error.names]
                report = _once(folder, device, walls, metrics, timeout_s)
        except Unavailable as error:
            failures.append(error)
            continue
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(walls)
        return report
    words = "; ".join(dict.fromkeys(f.reason for f in failures))
    raise Unavailable("ncu", words, next((f.remedy for f in failures if f.remedy), ""))


def _once(folder: Path, device: str, walls: str, metrics: Sequence[str], timeout_s: float) -> Report:
    import kforge

    out = folder / f"profile-{walls}.ncu-rep"
    out.unlink(missing_ok=True)
    command = [
        str(find_ncu()), "--clock-control", "none", "--cache-control", "all", "--target-processes", "application-only",
        "--metrics", ",".join(metrics), "--section", "SourceCounters", "--section", "WarpStateStats",
        "--force-overwrite", "--export", str(out),
        sys.executable, "-m", "kforge.worker.replay", str(folder), walls, "1",
    ]  # fmt: skip
    own = str(Path(kforge.__file__).resolve().parent.parent)
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    environment |= {
        "PYTHONPATH": own,
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": _physical(device),
        "HOME": str(folder),
        "TMPDIR": str(folder.parent),
    }
    done = _run(command, timeout_s, environment)
    text = done.stdout + done.stderr
    if DENIED.search(text):
        raise Unavailable("ncu", f"counters are denied behind the walls '{walls}'", REMEDY)
    if not out.is_file() and (named := frozenset(name for name in metrics if name in text)):
        raise _Unknown(named)
    if not out.is_file():
        raise Unavailable("ncu", f"no report behind the walls '{walls}': {_last_words(done)}")
    launches, reader = _read(out)
    if not launches:
        raise Unavailable("ncu", f"an empty report behind the walls '{walls}': {_last_words(done)}")
    return Report(launches, walls, reader)


def _physical(device: str) -> str:
    index = int(device.partition(":")[2] or 0)
    visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
    return visible[index] if index < len(visible) else str(index)


def _read(path: Path) -> tuple[tuple[Profiled, ...], str]:
    from kforge.profiling.sources import ncu_report

    try:
        return ncu_report.read(path), "ncu_report"
    except Unavailable:
        done = _run([str(find_ncu()), "--import", str(path), "--csv", "--page", "raw", "--print-units", "base"], 30)
        return ncu_report.read_csv(done.stdout), "csv"


def _run(
    command: Sequence[str], timeout_s: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    except OSError as error:
        raise Unavailable("ncu", f"{command[0]}: {error.strerror}") from error
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        for pid in [*descendants(process.pid), process.pid]:  # the replay has a session of its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
        raise Unavailable("ncu", f"no end after {timeout_s:g} s") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "==ERROR==" in line] or lines[-1:]
    return errors[0].strip()[:200] if errors else f"exit code {done.returncode}"
