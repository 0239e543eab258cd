"""Runs a described list of launches under AddressSanitizer in several thread orders, in a process of its own.

The kernels are built here; the child only loads them. Every buffer is an exact malloc block, so a byte too far is
seen. Results are compared bitwise between orders: a difference is a race, unless the source uses atomics.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kforge.errors import BuildError, EmulatorError
from kforge.kernel.emulator.findings import Finding, Region, SharedVariable, environment, parse
from kforge.kernel.emulator.job import Buffer, Launch, Pointer, Scalar, argument, build_all, encode, exit_text, load_all
from kforge.kernel.emulator.mode import Kind

__all__ = ["Buffer", "CheckedReport", "Launch", "Pointer", "Scalar", "run_checked"]
ORDERS = (0, 1, 2, 3)  # lock step, greedy, reversed, one random


@dataclass(frozen=True)
class CheckedReport:
    """findings: each place once. launches: how many ran to their end. not_compared: kernels with atomics."""

    findings: tuple[Finding, ...]
    launches: int
    not_compared: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.findings


def run_checked(
    launches: Sequence[Launch], buffers: Sequence[Buffer], orders: Sequence[int] = ORDERS, timeout: float = 120.0
) -> CheckedReport:
    """Runs `launches` in turn, once per order, from the same initial buffers.

    timeout: seconds for the whole child. BuildError: a source does not compile. Whatever goes wrong inside a kernel,
    the child's death included, is a finding.
    """
    build_all(launches, Kind.CHECKED)
    with tempfile.TemporaryDirectory(prefix="kforge-checked-") as name:
        folder = Path(name)
        for i, buffer in enumerate(buffers):
            (folder / f"{i}.bin").write_bytes(buffer.data)
        job = {
            "orders": list(orders),
            "buffers": [{"name": b.name, "nbytes": b.nbytes} for b in buffers],
            "launches": [encode(launch) for launch in launches],
        }
        (folder / "job.json").write_text(json.dumps(job))
        env = {
            **os.environ,
            **environment(log=str(folder / "reports")),
            "KFORGE_EMULATOR_FINDINGS": str(folder / "findings"),
        }
        command = [sys.executable, "-m", "kforge.kernel.emulator.checked", str(folder)]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
            died = f"the process died ({exit_text(done.returncode)})" if done.returncode else ""
        except subprocess.TimeoutExpired:
            done, died = None, f"no end after {timeout:g} s"
        return _collect(folder, launches, died, done.stderr if done else "")


def _collect(folder: Path, launches: Sequence[Launch], died: str, stderr: str) -> CheckedReport:
    lines = (folder / "result.jsonl").read_text().splitlines() if (folder / "result.jsonl").exists() else []
    rows = [json.loads(line) for line in lines]
    findings = [Finding(**r["finding"]) for r in rows if "finding" in r]
    finished = sum("done" in r for r in rows)
    if died:
        started = [r for r in rows if "start" in r]
        if not started:
            text = stderr.strip().splitlines()
            raise EmulatorError(f"the checked run did not start: {died}", text[-1] if text else "")
        findings += _last_words(folder / "findings", started[-1], launches, died)
    unique: dict[tuple[object, ...], Finding] = {}
    for f in findings:
        unique.setdefault((f.kind, f.kernel, f.file, f.line, f.buffer, f.access, f.message), f)
    not_compared = {r["not_compared"] for r in rows if "not_compared" in r}
    return CheckedReport(tuple(unique.values()), finished, tuple(sorted(not_compared)))


def _last_words(records: Path, start: dict[str, Any], launches: Sequence[Launch], died: str) -> list[Finding]:
    """What the launch that killed the child had reported before."""
    number, order = start["start"]
    text = records.read_bytes()[start["position"] :].decode(errors="replace") if records.exists() else ""
    variables = [SharedVariable(*v) for v in start["variables"]]
    found = parse(text, variables, [Region(*r) for r in start["regions"]])
    if not any(f.kind == "crashed" for f in found):
        found.append(Finding("crashed", ""))
    kernel = launches[number].kernel
    return [
        replace(f, kernel=kernel, order=order, launch=number, message=died if f.kind == "crashed" else f.message)
        for f in found
    ]


# ---- the child -----------------------------------------------------------------------------------------------------


def _child(folder: Path) -> None:

    job = json.loads((folder / "job.json").read_text())
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    results = (folder / "result.jsonl").open("w", buffering=1)

    def say(**row: object) -> None:
        results.write(json.dumps(row) + "\n")

    programs = load_all(job, Kind.CHECKED)
    first: dict[tuple[int, str], bytes] = {}
    for order in job["orders"]:
        regions = {b["name"]: Region(b["name"], libc.malloc(max(1, b["nbytes"])), b["nbytes"]) for b in job["buffers"]}
        for i, region in enumerate(regions.values()):
            data = (folder / f"{i}.bin").read_bytes()
            ctypes.memmove(region.address, data, len(data))
            ctypes.memset(region.address + len(data), 0xFF, region.nbytes - len(data))
        for number, row in enumerate(job["launches"]):
            program, kernel = programs[row["source"]], row["kernel"]
            records = folder / "findings"
            say(
                start=[number, order],
                position=records.stat().st_size if records.exists() else 0,
                regions=[[r.name, r.address, r.nbytes] for r in regions.values()],
                variables=[[v.name, v.offset, v.nbytes] for v in program.shared_variables],
            )
            try:
                program.launch(
                    kernel, row["grid"], row["block"], row["shared"], [argument(a, regions) for a in row["args"]],
                    row["cluster"], order, row["cooperative"], tuple(regions.values()), raise_findings=False,
                )  # fmt: skip
                say(done=[number, order])
            except EmulatorError as error:
                say(finding=Finding("failed", kernel, order, message=error.message, launch=number).as_dict())
            for finding in program.findings:
                say(finding=replace(finding, launch=number).as_dict())
            if program.used_atomics:
                say(not_compared=kernel)
                continue
            for given in row["args"]:
                if given.get("buffer"):
                    region = regions[given["buffer"]]
                    data = ctypes.string_at(region.address, region.nbytes)
                    before = first.setdefault((number, region.name), data)
                    if data != before:
                        at = next(k for k, (a, b) in enumerate(zip(before, data, strict=True)) if a != b)
                        differs = Finding("order", kernel, order, buffer=region.name, offset=at, nbytes=region.nbytes)
                        say(finding=replace(differs, launch=number).as_dict())


if __name__ == "__main__":
    try:
        _child(Path(sys.argv[1]))
    except BuildError as error:
        sys.exit(error.message)
