"""compute-sanitizer over one call: the tool is found, started on `standalone.py`, and its report read.

Runs in a child in phase *build*, whose sandbox tool and target inherit; they talk over abstract unix sockets and pipes
in TMPDIR. What the sandbox denies to CUDA in a program that it did not start with is naming.cpp's matter.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.worker import guard

if TYPE_CHECKING:
    from kforge.worker.child import Server

_FLAGS = (
    "--report-api-errors", "no", "--show-backtrace", "no", "--print-limit", "20", "--launch-timeout", "60",
    "--target-processes", "application-only", "--check-exit-code", "no", "--demangle", "simple",
)  # fmt: skip
_ACCESS = re.compile(r"(Invalid|Misaligned) __(\w+)__ (read|write|atomic)\w* of size (\d+) bytes")
_RACE = re.compile(r"(Error|Warning): (?:Race reported|Potential \w+ hazard detected)(.*)")
_PLACE = re.compile(r"\bat (?:void )?(.+?)[+:]0x[0-9a-f]+(?: in (\S+?):(\d+))?")
_THREAD = re.compile(r"by thread (\([\d,]+\)) in block (\([\d,]+\))")
_ADDRESS = re.compile(r"(?:Address|Access (?:to|at)) (0x[0-9a-f]+) (is .*)")
_PADDING = 512  # bytes behind each allocation that belong to none
_WORDS = 300


def find() -> Path | None:
    """The tool itself: on PATH, in a toolkit, or in the wheel nvidia-cuda-sanitizer-api."""
    from kforge.kernel.build.toolchain import toolkit_roots, wheel_roots

    found = shutil.which("compute-sanitizer")
    if found:
        return Path(found).resolve()
    places = [root / "bin" / "compute-sanitizer" for root in toolkit_roots()]
    places += [root / "compute-sanitizer" / "compute-sanitizer" for root in (*toolkit_roots(), *wheel_roots())]
    return next((place for place in places if os.access(place, os.X_OK)), None)


@dataclass(frozen=True)
class Job:
    """A folder with everything that one call needs, for `standalone.py`. naming: the library to load first."""

    folder: Path
    naming: Path

    @staticmethod
    def of(server: Server, args: Any, kwargs: Any) -> Job:
        """Save the call of `server`'s loaded model: inputs, constructor's arguments, state."""
        import torch

        folder = Path(os.environ["TMPDIR"]) / "sanitized"
        folder.mkdir(exist_ok=True)
        module, init = server.loaded
        saved = {
            "module": str(server.folder / module), "device": server.device, "precision": server.precision,
            "overrides": server.overrides, "training": server.model.training, "init": init, "args": args,
            "kwargs": kwargs, "state": server.state("all"), "gradients": server.gradients,
        }  # fmt: skip
        torch.save(saved, folder / "call.pt")
        return Job(folder, guard.compiled(Path(__file__).with_name("naming.cpp"), "naming threads in the sandbox"))


def run(job: Job, tool: str, limit_s: float) -> dict[str, Any]:
    """One row of the memory gate's answer: mode, seconds, findings, skipped."""
    begin = time.perf_counter()
    program = find()
    if program is None:
        return _row(tool, begin, skipped="compute-sanitizer is not here: it comes with the CUDA toolkit")
    report = job.folder / f"{tool}.txt"
    report.unlink(missing_ok=True)
    done = job.folder / f"{tool}.done"
    done.unlink(missing_ok=True)
    target = [sys.executable, "-m", "kforge.worker.standalone", str(job.folder), str(done)]
    flags = [*_FLAGS, "--preload-library", str(job.naming)]
    if tool == "memcheck":
        flags += ["--padding", str(_PADDING)]
    command = [str(program), "--tool", tool, *flags, "--log-file", str(report), *target]
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # every tensor an allocation of its own
    try:
        out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return _row(tool, begin, skipped=f"no end after {limit_s:g} s")
    text = report.read_text(errors="replace") if report.exists() else ""
    findings = parse(text)
    if not findings and not done.exists():
        words = (out.stderr.strip() or text.strip() or out.stdout.strip() or f"exit code {out.returncode}").splitlines()
        return _row(tool, begin, skipped=f"the call did not come to its end: {words[-1][:_WORDS]}")
    return _row(tool, begin, findings)


def _row(tool: str, begin: float, findings: list[dict[str, Any]] | None = None, skipped: str = "") -> dict[str, Any]:
    return {"mode": tool, "seconds": time.perf_counter() - begin, "findings": findings or [], "skipped": skipped}


def parse(text: str) -> list[dict[str, Any]]:
    """The tool's text as findings (fields of the emulator's Finding), each place once."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    lines = [line.lstrip("=").strip() for line in text.splitlines()]
    for number, line in enumerate(lines):
        access, race = _ACCESS.search(line), _RACE.search(line)
        if not access and not race:
            continue
        block = [line]
        for following in lines[number + 1 :]:
            if not following or _ACCESS.search(following) or _RACE.search(following):
                break
            block.append(following)
        finding = _access(access, block) if access else _race(race, block)  # type: ignore[arg-type]
        found.setdefault((finding["kind"], finding["kernel"], finding["file"], finding["line"]), finding)
    return list(found.values())


def _access(match: re.Match[str], block: list[str]) -> dict[str, Any]:
    text = "\n".join(block)
    place, thread, address = _PLACE.search(text), _THREAD.search(text), _ADDRESS.search(text)
    return {
        "kind": "misaligned" if match[1] == "Misaligned" or "misaligned" in text else "out_of_bounds",
        "kernel": _kernel(place), "file": (place and place[2]) or "", "line": int((place and place[3]) or 0),
        "access": match[3], "size": int(match[4]), "thread": thread[1] if thread else "",
        "block": thread[2] if thread else "", "message": address[2][:_WORDS] if address else "",
    }  # fmt: skip


def _race(match: re.Match[str], block: list[str]) -> dict[str, Any]:
    text = "\n".join(block)
    places = list(_PLACE.finditer(text))
    first, second = [*places, None, None][:2]
    words = [*re.findall(r"(Read|Write) access at", text), "", ""]
    return {
        "kind": "race", "kernel": _kernel(first), "file": (first and first[2]) or "",
        "line": int((first and first[3]) or 0), "access": words[0].lower(), "buffer": "shared memory",
        "other_file": (second and second[2]) or "", "other_line": int((second and second[3]) or 0),
        "other_access": words[1].lower(), "message": match[1].lower(),
    }  # fmt: skip


def _kernel(place: re.Match[str] | None) -> str:
    """Without its parameters; template arguments stay: "rows<float, (int)4>"."""
    name = place[1] if place else ""
    depth = 0
    for index, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:index].strip()
    return name.strip()
