"""Reads what ncu exports: an .ncu-rep through NVIDIA's module ncu_report, or the raw page as CSV."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from kforge.kernel.build.toolchain import toolkit_roots
from kforge.kernel.emulator.access import Access
from kforge.profiling.evidence import Sampled
from kforge.profiling.sources import Unavailable
from kforge.profiling.sources.ncu import Profiled, find_ncu
from kforge.profiling.sources.ncu_metrics import named

SAMPLES = "smsp__pcsamp_warps_issue_stalled_"
# per-instruction metrics of section SourceCounters, in order of preference
EXECUTED = ("inst_executed", "smsp__sass_inst_executed")
THREADS = ("thread_inst_executed", "thread_inst_executed_true", "smsp__sass_thread_inst_executed")
_GLOBAL = ("memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal")
_SHARED = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal")


def _module() -> Any:
    """The official reader: installed as a package, or beside the ncu that is here."""
    try:
        return import_module("ncu_report")
    except ImportError:
        sys.path += [str(folder) for folder in _readers()[:1]]
    try:
        return import_module("ncu_report")
    except ImportError as error:
        words = f"the reader of .ncu-rep files is not here: {error}"
        raise Unavailable("ncu_report", words, "pip install ncu-report") from error


def _readers() -> list[Path]:
    """Folders of the reader that came with Nsight Compute, newest first."""
    places = [find_ncu().resolve().parent, *(p for root in toolkit_roots() for p in root.glob("nsight-compute*"))]
    places += Path("/opt/nvidia/nsight-compute").glob("*")
    return sorted({p / "extras" / "python" for p in places if (p / "extras" / "python").is_dir()}, reverse=True)


def read(path: Path) -> tuple[Profiled, ...]:
    """Every profiled launch of a report, in order."""
    try:
        report = _module().load_report(str(path))
    except (RuntimeError, OSError) as error:
        raise Unavailable("ncu_report", f"{path.name} cannot be read: {error}") from error
    return tuple(
        _launch(action) for number in range(report.num_ranges()) for action in _actions(report.range_by_idx(number))
    )


def _actions(part: Any) -> Iterator[Any]:
    for number in range(part.num_actions()):
        yield part.action_by_idx(number)


def _launch(action: Any) -> Profiled:
    values: dict[str, float] = {}
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = _number(metric)
        if value is not None:
            values[name] = value
    return Profiled(str(action.name()), named(values), _instructions(action, frozenset(action.metric_names())))


def _number(metric: Any) -> float | None:
    try:
        value = metric.as_double()
    except (RuntimeError, TypeError, ValueError):
        return None
    return None if value is None else float(value)


def _by_address(action: Any, name: str) -> dict[int, int]:
    """One metric's value at each instruction's address; empty where it is not there."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return {}
    ids = metric.correlation_ids()
    return {int(ids.as_uint64(i)): int(metric.as_uint64(i)) for i in range(ids.num_instances())}


def _instructions(action: Any, names: frozenset[str]) -> tuple[Sampled, ...]:
    stalls = {
        name.removeprefix(SAMPLES): _by_address(action, name)
        for name in names
        if name.startswith(SAMPLES) and not name.endswith("_not_issued")
    }
    executed = next((t for n in EXECUTED if n in names and (t := _by_address(action, n))), {})
    threads = next((t for n in THREADS if n in names and (t := _by_address(action, n))), {})
    tables = {name: _by_address(action, name) for name in (*_GLOBAL, *_SHARED) if name in names}
    found: list[Sampled] = []
    for address in sorted({a for table in (*stalls.values(), executed) for a in table}):
        place = action.source_info(address)
        waits = {reason: table[address] for reason, table in stalls.items() if table.get(address)}
        moved = [tables.get(name, {}).get(address, 0) for name in (*_GLOBAL, *_SHARED)]
        found.append(
            Sampled(
                Path(place.file_name()).name if place is not None else "",
                int(place.line()) if place is not None else 0,
                address,
                " ".join(str(action.sass_by_pc(address)).split()),
                sum(waits.values()),
                waits,
                executed.get(address, 0),
                threads.get(address, 0),
                *moved,
            )
        )
    return tuple(found)


def access_of(sampled: Iterable[Sampled]) -> tuple[Access, ...]:
    """What instructions moved, by source line."""
    rows: dict[tuple[str, int, str, str], list[int]] = {}
    for row in sampled:
        for space, units, ideal in (
            ("global", row.sectors, row.sectors_ideal),
            ("shared", row.passes, row.passes_ideal),
        ):
            if units and row.line:
                sums = rows.setdefault((row.file, row.line, space, _verb(row.sass)), [0, 0, 0, 0])
                for i, n in enumerate((row.threads, row.executed, units, ideal or units)):
                    sums[i] += n
    return tuple(
        Access(file, line, space, verb, 0, n, (32 if space == "global" else 128) * units, runs, units, ideal)
        for (file, line, space, verb), (n, runs, units, ideal) in rows.items()
    )


def _verb(sass: str) -> str:
    words = sass.split()
    opcode = words[1] if words and words[0].startswith("@") and len(words) > 1 else words[0] if words else ""
    if opcode.startswith(("ATOM", "RED")):
        return "read+write"
    return "write" if opcode.startswith(("ST", "UTMAST")) else "read"


def read_csv(text: str) -> tuple[Profiled, ...]:
    """The raw page (--page raw --csv --print-units base): a row of names, one of units, then one a launch."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return ()
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    head, found = rows[0], []
    for row in rows[2:]:
        values: dict[str, float] = {}
        for name, cell in zip(head, row, strict=False):
            try:
                values[name] = float(cell.replace(",", ""))
            except ValueError:
                continue
        found.append(Profiled(row[head.index("Kernel Name")], named(values)))
    return tuple(found)
