"""Runs a described list of launches under the race detector, in a process of its own, and profiles every source line.

What orders two accesses: barriers of blocks, clusters and grids, warp operations among the lanes of their mask, and
flags (an atomic or volatile store after a fence, read by an atomic or by a volatile read before a fence). Two accesses
that nothing orders race, whichever ran first; so one thread order finds what no comparison of results can.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kforge.errors import BuildError, EmulatorError
from kforge.kernel.emulator.access import Access
from kforge.kernel.emulator.debuginfo import Symbols
from kforge.kernel.emulator.findings import Finding, Region
from kforge.kernel.emulator.job import Buffer, Launch, Pointer, Scalar, argument, build_all, encode, exit_text, load_all
from kforge.kernel.emulator.mode import Kind
from kforge.kernel.emulator.races import parse

__all__ = ["Buffer", "Launch", "Pointer", "Scalar", "Totals", "TracedReport", "run_traced"]
ORDERS = (0, 2)  # what a flag orders depends on who came first: lock step, and from the last thread


@dataclass(frozen=True)
class Totals:
    """Bytes of global memory that one launch reads and writes (what its threads ask for)."""

    kernel: str
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class TracedReport:
    """findings: races and accesses outside every buffer, each pair of lines once. warnings: writes that race but leave
    the same value. profile, totals: by launch, of the first order. launches: how many ran to their end.
    """

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    profile: tuple[tuple[Access, ...], ...]
    totals: tuple[Totals, ...]
    launches: int

    @property
    def clean(self) -> bool:
        return not self.findings


def run_traced(
    launches: Sequence[Launch], buffers: Sequence[Buffer], orders: Sequence[int] = ORDERS, timeout: float = 300.0
) -> TracedReport:
    """Runs `launches` in turn, once per order, from the same initial buffers (aligned to 256 bytes).

    timeout: seconds for the whole child. BuildError: a source does not compile. Whatever goes wrong inside a kernel,
    the child's death included, is a finding.
    """
    build_all(launches, Kind.TRACED)
    with tempfile.TemporaryDirectory(prefix="kforge-traced-") as name:
        folder = Path(name)
        for i, buffer in enumerate(buffers):
            (folder / f"{i}.bin").write_bytes(buffer.data)
        job = {
            "orders": list(orders),
            "buffers": [{"name": b.name, "nbytes": b.nbytes} for b in buffers],
            "launches": [encode(launch) for launch in launches],
        }
        (folder / "job.json").write_text(json.dumps(job))
        env = {**os.environ, "KFORGE_EMULATOR_FINDINGS": str(folder / "findings")}
        command = [sys.executable, "-m", "kforge.kernel.emulator.traced", str(folder)]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
            died, stderr = f"the process died ({exit_text(done.returncode)})" if done.returncode else "", done.stderr
        except subprocess.TimeoutExpired:
            died, stderr = f"no end after {timeout:g} s", ""
        return _collect(folder, launches, died, stderr)


def _collect(folder: Path, launches: Sequence[Launch], died: str, stderr: str) -> TracedReport:
    lines = (folder / "result.jsonl").read_text().splitlines() if (folder / "result.jsonl").exists() else []
    rows = [json.loads(line) for line in lines]
    findings = [Finding(**r["finding"]) for r in rows if "finding" in r]
    if died:
        started = [r for r in rows if "start" in r]
        if not started:
            text = stderr.strip().splitlines()
            raise EmulatorError(f"the traced run did not start: {died}", text[-1] if text else "")
        findings += _last_words(folder / "findings", started[-1], launches, died)
    unique: dict[tuple[object, ...], Finding] = {}
    for f in findings:
        pair = frozenset([(f.file, f.line, f.access), (f.other_file, f.other_line, f.other_access)])
        unique.setdefault((f.kind, f.kernel, pair, f.buffer, f.message), f)
    first = [r for r in rows if "totals" in r]
    return TracedReport(
        findings=tuple(f for f in unique.values() if f.kind != "same_value"),
        warnings=tuple(f for f in unique.values() if f.kind == "same_value"),
        profile=tuple(tuple(Access(**p) for p in r["profile"]) for r in first),
        totals=tuple(Totals(*r["totals"]) for r in first),
        launches=sum("done" in r for r in rows),
    )


def _last_words(records: Path, start: dict[str, Any], launches: Sequence[Launch], died: str) -> list[Finding]:
    """What the launch that killed the child had recorded before."""
    number, order = start["start"]
    text = records.read_bytes()[start["position"] :].decode(errors="replace") if records.exists() else ""
    symbols = Symbols.read(Path(start["library"]))
    found = parse([record.split("\x1f") for record in text.split("\x1e")[:-1]], symbols)
    kernel = launches[number].kernel
    found.append(Finding("crashed", "", message=died))
    return [replace(f, kernel=kernel, order=order, launch=number) for f in found]


# ---- the child -----------------------------------------------------------------------------------------------------


def _child(folder: Path) -> None:

    job = json.loads((folder / "job.json").read_text())
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
    results = (folder / "result.jsonl").open("w", buffering=1)

    def say(**row: object) -> None:
        results.write(json.dumps(row) + "\n")

    programs = load_all(job, Kind.TRACED)
    records = folder / "findings"
    for k, order in enumerate(job["orders"]):
        regions = {}
        for i, b in enumerate(job["buffers"]):
            size = (b["nbytes"] + 511) // 256 * 256  # at least one unused byte between buffers
            region = regions[b["name"]] = Region(b["name"], libc.aligned_alloc(256, size), b["nbytes"])
            data = (folder / f"{i}.bin").read_bytes()
            ctypes.memmove(region.address, data, len(data))
            ctypes.memset(region.address + len(data), 0xFF, region.nbytes - len(data))
        for number, row in enumerate(job["launches"]):
            program, kernel = programs[row["source"]], row["kernel"]
            position = records.stat().st_size if records.exists() else 0
            say(start=[number, order], position=position, library=str(program.library.path))
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
            if k == 0:
                read, written = program.traffic
                say(totals=[kernel, read, written], profile=[asdict(p) for p in program.profile])


if __name__ == "__main__":
    try:
        _child(Path(sys.argv[1]))
    except BuildError as error:
        sys.exit(error.message)
