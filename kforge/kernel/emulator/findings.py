"""What mode `checked` finds, as data: AddressSanitizer's reports of one process, tied to buffers and source lines."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from kforge.errors import EmulatorError, MissingError
from kforge.kernel.emulator import build

_NEAR = 1 << 16  # bytes beside a buffer that an access out of bounds is attributed to
_REGION = re.compile(r"is located (?:\d+) bytes [a-z ]+ (\d+)-byte region \[0x([0-9a-f]+),")
_FRAME = re.compile(r"^\s+#\d+ 0x[0-9a-f]+ in (.+) (\S+?):(\d+)(?::\d+)?$", re.M)


@dataclass(frozen=True)
class Region:
    """The memory behind a pointer: name, address, size in bytes (0: unknown, the allocation's is taken)."""

    name: str
    address: int
    nbytes: int


@dataclass(frozen=True)
class SharedVariable:
    """A static __shared__ variable: where it lies in a block's arena."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a kernel.

    kind: race (two accesses that nothing orders), same_value (two writes that race and leave the same bits),
    out_of_bounds, misaligned, order (results depend on the thread order), failed (divergent barrier, deadlock,
    time limit, assert), crashed. access: read or write, with its size in bytes. buffer: a parameter, a shared
    variable, or "dynamic shared memory". offset: first byte touched, relative to the buffer; nbytes: the buffer's size.
    other_*: the access that ran first, of a race. launch: its number among those of a run.
    """

    kind: str
    kernel: str
    order: int = 0
    file: str = ""
    line: int = 0
    access: str = ""
    size: int = 0
    buffer: str = ""
    offset: int = 0
    nbytes: int = 0
    thread: str = ""
    block: str = ""
    message: str = ""
    other_file: str = ""
    other_line: int = 0
    other_access: str = ""
    other_thread: str = ""
    other_block: str = ""
    launch: int = 0

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.line else ""
        if self.kind in ("out_of_bounds", "misaligned"):
            how = "out of bounds" if self.kind == "out_of_bounds" else "misaligned"
            text = f"{where}{self.kernel}: {self.access} of {self.size} bytes {how}"
            if self.buffer:
                text += f" at byte {self.offset} of {self.buffer} ({self.nbytes} bytes)"
            return f"{text}, thread {self.thread} of block {self.block}"
        if self.kind in ("race", "same_value"):
            same = " of the same value" if self.kind == "same_value" else ""
            return (
                f"{where}{self.kernel}: {self.access}{same} races with the {self.other_access} at "
                f"{self.other_file}:{self.other_line} on byte {self.offset} of {self.buffer or 'memory'}: "
                f"thread {self.thread} of block {self.block}, thread {self.other_thread} of block {self.other_block}"
            )
        if self.kind == "order":
            where = f"first at byte {self.offset}, order {self.order}"
            return f"{self.kernel}: {self.buffer} depends on the thread order ({where})"
        return f"{where}{self.kernel}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@lru_cache(maxsize=1)
def _asan_library() -> str:
    out = subprocess.run(
        [build.toolchain().compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not os.path.isabs(out):
        raise MissingError(
            "mode checked needs libasan and g++ has none", "install libasan of your g++ (Debian: libasan8)"
        )
    return os.path.realpath(out)


def environment(order: int = 0, log: str = "stderr") -> dict[str, str]:
    """Variables for an exec'd process in which Kernels on CPU tensors run in mode checked.

    log: where AddressSanitizer writes its own reports: stderr, or the beginning of a file name.
    """
    options = (
        "detect_leaks=0:halt_on_error=0:detect_stack_use_after_return=0:allocator_may_return_null=1:"
        f"use_sigaltstack=0:log_path={log}:symbolize=1:max_redzone=2048:alloc_dealloc_mismatch=0"
    )
    return {"LD_PRELOAD": _asan_library(), "ASAN_OPTIONS": options, "KFORGE_EMULATOR": f"checked:{order}"}


class Collector:
    """Takes reports from the runtime through an anonymous file, so that none is lost when the process dies."""

    def __init__(self, runtime: ctypes.CDLL, path: str | None = None) -> None:
        path = path or os.environ.get("KFORGE_EMULATOR_FINDINGS")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT) if path else os.memfd_create("kforge-findings")
        self._read = os.lseek(self._fd, 0, os.SEEK_END)
        if not runtime.kforge_emulator_report_to(self._fd):
            raise EmulatorError(
                "mode checked needs a process with AddressSanitizer loaded",
                "start it with the variables of kforge.kernel.emulator.findings.environment(), or use run_checked()",
            )

    def take(
        self, kernel: str, order: int, variables: Sequence[SharedVariable], regions: Iterable[Region]
    ) -> tuple[Finding, ...]:
        """The findings since the last call."""
        end = os.lseek(self._fd, 0, os.SEEK_END)
        data = os.pread(self._fd, end - self._read, self._read)
        self._read = end
        found = parse(data.decode(errors="replace"), variables, list(regions))
        return tuple(replace(f, kernel=kernel, order=order) for f in found)


def parse(text: str, variables: Sequence[SharedVariable], regions: Sequence[Region]) -> list[Finding]:
    """Records of runtime/findings.cpp as findings without kernel and order."""
    known = [r for r in regions if r.nbytes]
    findings = []
    for record in text.split("\x1e")[:-1]:
        kind, address, writes, size, arena, dynamic, dynamic_bytes, _rank, thread, block, place, report = record.split(
            "\x1f"
        )
        buffer, offset, nbytes = _locate(int(address), int(arena), int(dynamic), int(dynamic_bytes), variables, known)
        if not buffer and (m := _REGION.search(report)):
            allocation = Region(f"an allocation of {m[1]} bytes", int(m[2], 16), int(m[1]))
            inside = [r for r in regions if 0 <= r.address - allocation.address < allocation.nbytes]
            buffer = inside[0].name if inside else allocation.name
            offset, nbytes = int(address) - allocation.address, allocation.nbytes
        file, line = place.rsplit(":", 1) if place else _first_frame(report)
        plain = {"misaligned": "misaligned"}.get(kind, "crashed" if "SEGV" in report[:400] else "out_of_bounds")
        if "caused by a WRITE" in report:  # reports of signals carry no access type
            writes = "1"
        findings.append(
            Finding(
                kind=plain, kernel="", file=file, line=int(line), access="write" if writes == "1" else "read",
                size=int(size), buffer=buffer, offset=offset, nbytes=nbytes, thread=thread, block=block, message=kind,
            )
        )  # fmt: skip
    return findings


def _first_frame(report: str) -> tuple[str, str]:
    for m in _FRAME.finditer(report):
        if "/kforge_emulator/" not in m[2] and "/shadow/" not in m[2] and "interceptor" not in m[2]:
            return m[2].removeprefix("./"), m[3]
    return "", "0"


def _locate(
    address: int,
    arena: int,
    dynamic: int,
    dynamic_bytes: int,
    variables: Sequence[SharedVariable],
    regions: Sequence[Region],
) -> tuple[str, int, int]:
    """(buffer, byte offset, size of the buffer) of an address: the nearest shared variable or region."""
    if arena >= 0:
        places = [Region(v.name, v.offset, v.nbytes) for v in variables]
        if dynamic_bytes:
            places.append(Region("dynamic shared memory", dynamic, dynamic_bytes))
        address = arena
    else:
        places = [r for r in regions if r.address - _NEAR <= address < r.address + r.nbytes + _NEAR]
    if not places:
        return "", 0, 0
    best = min(places, key=lambda r: max(r.address - address, address - (r.address + r.nbytes - 1), 0))
    return best.name, address - best.address, best.nbytes
