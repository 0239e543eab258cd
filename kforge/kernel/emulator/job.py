"""A described list of launches and their buffers, and how they travel to a process of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.kernel.emulator.findings import Region
from kforge.kernel.emulator.mode import Kind, Mode
from kforge.kernel.tensor_map import with_pointer

if TYPE_CHECKING:
    from kforge.kernel.emulator.program import Program


@dataclass(frozen=True)
class Buffer:
    """Memory that launches point into. data: its first bytes; the rest starts as 0xff (NaN)."""

    name: str
    nbytes: int
    data: bytes = b""


@dataclass(frozen=True)
class Pointer:
    """An argument that points `offset` bytes into a buffer; buffer None: a null pointer."""

    buffer: str | None
    offset: int = 0


@dataclass(frozen=True)
class Scalar:
    """An argument by value, as the bytes the parameter has in memory."""

    data: bytes


@dataclass(frozen=True)
class Map:
    """A tensor map by value, as its bytes, whose pointer is `offset` bytes into a buffer."""

    data: bytes
    buffer: str
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """One launch: a kernel (name expression) of a source, its dimensions, dynamic shared bytes and arguments."""

    source: str
    filename: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Pointer | Scalar | Map, ...]
    shared: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    includes: tuple[Path, ...] = ()


def kernels_of(source: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The kernels of one source, which are built together. pairs: (source, kernel) of every launch."""
    return list(dict.fromkeys(kernel for text, kernel in pairs if text == source))


def build_all(launches: Sequence[Launch], kind: Kind) -> None:
    """Build the sources of a list in this mode, each with all of its kernels. BuildError when one does not compile."""
    from kforge.kernel.emulator.build import build_library

    for launch in launches:
        kernels = kernels_of(launch.source, [(other.source, other.kernel) for other in launches])
        build_library(launch.source, launch.filename, kernels, {}, {}, launch.includes, kind)


def load_all(job: Mapping[str, Any], kind: Kind) -> dict[str, Program]:
    """The programs of a job that `build_all` has built, by source."""
    from kforge.kernel.emulator.program import load

    programs: dict[str, Program] = {}
    for row in job["launches"]:
        source = row["source"]
        if source not in programs:
            includes = [Path(p) for p in row["includes"]]
            kernels = kernels_of(source, [(r["source"], r["kernel"]) for r in job["launches"]])
            programs[source] = load(source, row["filename"], kernels, includes=includes, mode=Mode(kind))
    return programs


def exit_text(code: int) -> str:
    """How a process ended, in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def encode(launch: Launch) -> dict[str, Any]:
    """A launch as JSON."""
    row = {k: v for k, v in asdict(launch).items() if k not in ("args", "includes")}
    row["includes"] = [str(p) for p in launch.includes]
    row["args"] = [_encode(a) for a in launch.args]
    return row


def _encode(argument: Pointer | Scalar | Map) -> dict[str, Any]:
    row = asdict(argument)
    return {**row, "data": row["data"].hex()} if "data" in row else row


def argument(row: dict[str, Any], regions: dict[str, Region]) -> Any:
    """A launch's argument, read back, as a ctypes value."""
    if "data" in row:
        raw = bytes.fromhex(row["data"])
        if "buffer" in row:
            raw = with_pointer(raw, regions[row["buffer"]].address + row["offset"])
        return (ctypes.c_char * len(raw)).from_buffer_copy(raw)
    return ctypes.c_void_p(regions[row["buffer"]].address + row["offset"] if row["buffer"] is not None else None)
