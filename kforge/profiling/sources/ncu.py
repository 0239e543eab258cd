"""Nsight Compute over a replay of the candidate's launches: counters, and samples by instruction and source line.

Clocks are left alone (--clock-control none). Metric names are asked of the installed version once and kept in the
cache. The report is read through NVIDIA's own reader where it is here, as CSV else (then without source lines).
ncu stands behind walls with what it profiles (worker/walled.py): it reads a foreign cubin.
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
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import kforge
from kforge.errors import MissingError
from kforge.kernel.build.cache import cache_root
from kforge.kernel.build.toolchain import toolkit_roots
from kforge.profiling.evidence import Sampled
from kforge.profiling.sources import Unavailable
from kforge.profiling.sources.ncu_metrics import choose
from kforge.worker import walled
from kforge.worker.guard import compiled
from kforge.worker.limits import descendants

QUERY_S = 20.0
START_S, LAUNCH_S = 12.0, 1.5  # the longest that ncu may take: to start, and for each launch
PASSES = 60  # beyond that, so many times the launches' own time
LONG_S = 0.05  # calls beyond are not counted by instruction, which takes tens of times as long
HOPELESS_MIN = 30.0  # that it is believed that no walls work
DENIED = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU", re.I)
REMEDY = (
    "an administrator allows counters for all users with the driver option NVreg_RestrictProfilingToAdminUsers=0"
    " (in /etc/modprobe.d, then reload the driver), or starts the container with the capability SYS_ADMIN or PERFMON"
)
SECTIONS = ("WarpStateStats", "SourceCounters")  # the second by instruction
PACKAGES, NAMING = "packages", "naming.so"
_ADMIN_ONLY = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_SYS_ADMIN, _PERFMON = 21, 38
_PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME")


@dataclass(frozen=True)
class Profiled:
    """One launch under ncu. counters by short name; sampled needs the official reader."""

    kernel: str
    counters: dict[str, float]
    sampled: tuple[Sampled, ...] = ()


@dataclass(frozen=True)
class Report:
    """What one run of ncu gave. walls: those that stood around it."""

    launches: tuple[Profiled, ...]
    walls: str
    reader: str
    notes: tuple[str, ...] = field(default_factory=tuple)


class _Endless(Unavailable):
    """ncu was ended: its time was over."""


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
    version = re.sub(r"\W+", "-", _ask([str(ncu), "--version"]).stdout.strip().splitlines()[-1])
    path = cache_root() / "ncu" / f"{version}-{chip}.json"
    if path.is_file():
        return tuple(json.loads(path.read_text()))
    names: list[str] = []
    for words in (["--chips", chip], []) if chip else ([],):  # without: of the GPUs that are here
        done = _ask([str(ncu), "--query-metrics", *words])
        names = sorted({m[1] for m in re.finditer(r"^\s*([a-z0-9]+__\w+)", done.stdout, re.M)})
        if names:
            break
    else:
        raise Unavailable("ncu", f"ncu lists no metrics: {_last_words(done.stdout + done.stderr, done.returncode)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(names))
    fresh.replace(path)
    return tuple(names)


def run(
    folder: Path, scratch: Path, device: str, chip: str = "", timeout_s: float | None = None, call_s: float = 0.0
) -> Report:
    """Profile the launches written in `folder` (worker/profiled.py). Unavailable when ncu or counters are.

    scratch: a folder of ncu's own, made here. device: "cuda:N". Walls are tried in turn, the strictest first; those
    that worked are remembered in the cache. timeout_s: of one try, by the launches where it is None. call_s: what all
    launches take together, where it is known.
    """
    promising = _promising()
    metrics = list(choose(available_metrics(chip)).values())
    launches = len(json.loads((folder / "launches.json").read_text())["launches"])
    timeout_s = timeout_s or START_S + LAUNCH_S * launches + PASSES * call_s
    sections = SECTIONS if call_s < LONG_S else SECTIONS[:1]
    memory = _Memory(cache_root() / "ncu" / "walls.json")
    known = memory.recall()
    failures: list[Unavailable] = []
    for walls in sorted(promising, key=lambda w: w != known):
        try:
            try:
                report = _once(folder, scratch, device, walls, metrics, sections, timeout_s)
            except _Unknown as error:  # listed, and yet not to be had with this suffix
                metrics = [name for name in metrics if name not in error.names]
                report = _once(folder, scratch, device, walls, metrics, sections, timeout_s)
        except _Endless as error:
            failures.append(error)
            if walls == known:  # it is these launches that take so long
                break
        except Unavailable as error:
            failures.append(error)
        else:
            memory.keep(walls)
            return report
    words = "; ".join(dict.fromkeys(f.reason for f in failures))
    found = Unavailable("ncu", words, next((f.remedy for f in failures if f.remedy), ""))
    if not known:
        memory.keep("", found)
    raise found


class _Memory:
    """The walls that worked on this machine; for a while also that none did, so that not every profile waits for it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def recall(self) -> str:
        """The walls, "" where nothing is known. Unavailable where a short time ago none worked."""
        try:
            data = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return ""
        if data["walls"]:
            return str(data["walls"])
        minutes = (time.time() - data["at"]) / 60
        if 0 <= minutes < HOPELESS_MIN:
            words = f"{data['reason']} (tried {minutes:.0f} minutes ago; {self.path} remembers it)"
            raise Unavailable("ncu", words, data["remedy"])
        return ""

    def keep(self, walls: str, why: Unavailable | None = None) -> None:
        reason, remedy = (why.reason, why.remedy) if why else ("", "")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fresh.write_text(json.dumps({"walls": walls, "reason": reason, "remedy": remedy, "at": time.time()}))
        fresh.replace(self.path)


def _promising() -> tuple[str, ...]:
    """The walls that the driver's own word leaves hope for. Unavailable where counters are an administrator's only."""
    try:
        restricted = re.search(r"RmProfilingAdminOnly:\s*1", _ADMIN_ONLY.read_text()) is not None
        mask = re.search(r"^CapEff:\s*([0-9a-f]+)", _STATUS.read_text(), re.M)
    except OSError:
        return walled.WALLS
    if not restricted or mask is None:
        return walled.WALLS
    if not int(mask[1], 16) & (1 << _SYS_ADMIN | 1 << _PERFMON):
        raise Unavailable("ncu", "the driver gives counters to administrators only", REMEDY)
    return tuple(w for w in walled.WALLS if w != walled.FULL)


def command(
    folder: Path, out: Path, walls: str, metrics: Sequence[str], sections: Sequence[str] = SECTIONS
) -> list[str]:
    """The walls, ncu, and the replay of the launches in `folder`. out: the report, in ncu's own folder."""
    candidate = folder.parent.parent
    naming = out.parent / NAMING
    return [
        sys.executable, "-m", "kforge.worker.walled", walls, str(out.parent), str(candidate),
        str(find_ncu()), "--config-file", "off", "--clock-control", "none", "--cache-control", "all",
        "--target-processes", "application-only", "--apply-rules", "no",
        *(["--preload-library", str(naming)] if naming.is_file() else []),
        "--metrics", ",".join(metrics), *(word for name in sections for word in ("--section", name)),
        "--force-overwrite", "--export", str(out),
        sys.executable, "-m", "kforge.worker.replay", str(folder), "none", "1",
    ]  # fmt: skip


def environment(scratch: Path, device: str) -> dict[str, str]:
    """Of ncu. Its home is a fresh folder, so that no settings and no rules (they are programs) are read from one."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
        "PYTHONPATH": str(scratch / PACKAGES),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_PATH": str(_installation()),  # the walls open it
        "CUDA_VISIBLE_DEVICES": _physical(device),
        "HOME": str(scratch),
        "TMPDIR": str(scratch / "tmp"),
        "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
        "NV_COMPUTE_PROFILER_LOCAL_CONNECTION_OVERRIDE": "uds",  # the walls leave no other sockets
    }


def _installation() -> Path:
    """The folder that ncu and its libraries lie in."""
    place = find_ncu().resolve().parent
    return place.parent if place.name == "bin" else place


def furnish(scratch: Path) -> None:
    """An empty folder of ncu's own with what the program it starts needs behind the walls."""
    package = Path(kforge.__file__).resolve().parent
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "tmp").mkdir(parents=True)
    (scratch / PACKAGES).mkdir()  # the folder of a checkout is closed to it
    (scratch / PACKAGES / "kforge").symlink_to(package, target_is_directory=True)
    with contextlib.suppress(MissingError):  # without a C++ compiler; CUDA may still start behind the loosest walls
        shutil.copyfile(compiled(package / "worker" / "naming.cpp", "naming threads behind walls"), scratch / NAMING)


def _once(
    folder: Path,
    scratch: Path,
    device: str,
    walls: str,
    metrics: Sequence[str],
    sections: Sequence[str],
    timeout_s: float,
) -> Report:
    furnish(scratch)
    out, log = scratch / "profile.ncu-rep", scratch / "log.txt"
    code = _follow(
        command(folder, out, walls, metrics, sections), environment(scratch, device), scratch, log, timeout_s
    )
    text = log.read_text(errors="replace")
    if DENIED.search(text):
        raise Unavailable("ncu", f"counters are denied behind the walls '{walls}'", REMEDY)
    if code is None:
        raise _Endless("ncu", f"no end after {timeout_s:g} s behind the walls '{walls}': {_last_words(text, code)}")
    if not out.is_file() and (named := frozenset(name for name in metrics if name in text)):
        raise _Unknown(named)
    if not out.is_file():
        raise Unavailable("ncu", f"no report behind the walls '{walls}': {_last_words(text, code)}")
    launches, reader = _read(out)
    notes = () if len(sections) == len(SECTIONS) else ("the launches take too long to be counted by instruction",)
    if not launches:
        raise Unavailable("ncu", f"an empty report behind the walls '{walls}': {_last_words(text, code)}")
    return Report(launches, walls, reader, notes)


def _physical(device: str) -> str:
    index = int(device.partition(":")[2] or 0)
    visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
    return visible[index] if index < len(visible) else str(index)


def _read(path: Path) -> tuple[tuple[Profiled, ...], str]:
    from kforge.profiling.sources import ncu_report

    try:
        return ncu_report.read(path), "ncu_report"
    except Unavailable:
        done = _ask([str(find_ncu()), "--import", str(path), "--csv", "--page", "raw", "--print-units", "base"])
        return ncu_report.read_csv(done.stdout), "csv"


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A question to ncu itself, which runs nothing foreign."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=QUERY_S, check=False)
    except OSError as error:
        raise Unavailable("ncu", f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise Unavailable("ncu", f"no answer to {command[1]} after {QUERY_S:g} s") from None


def _follow(
    command: Sequence[str], environment: dict[str, str], folder: Path, log: Path, timeout_s: float
) -> int | None:
    """The exit code; None where the time was over, and then nothing of what it started is left."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _end(process.pid)
            process.wait()
            return None


def _end(root: int) -> None:
    """Kill a process and all below it, whatever sessions they made. Those that are stopped first start no others."""
    stopped: set[int] = set()
    while fresh := {root, *descendants(root)} - stopped:
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 5.0  # a kill is not done when the call returns
    while any(map(_runs, stopped)) and time.monotonic() < until:
        time.sleep(0.002)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] not in ("Z", "X")
    except OSError:
        return False


def _last_words(text: str, code: int | None) -> str:
    """ncu's error line, or else the last line there is."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "==ERROR==" in line] or lines[-1:]
    return errors[0].strip()[:200] if errors else f"exit code {code}"
