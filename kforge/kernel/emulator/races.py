"""What mode `traced` records, as data: races between threads and a profile per source line."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kforge.kernel.emulator.access import Access
from kforge.kernel.emulator.debuginfo import Symbols
from kforge.kernel.emulator.findings import Finding, Region


class _Buffer(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("address", ctypes.c_void_p), ("bytes", ctypes.c_uint64)]


class Recorder:
    """Gives one library's traced launches their buffers and reads what they record.

    read_bytes, written_bytes: of global memory, by the last launch.
    """

    def __init__(self, runtime: ctypes.CDLL, library: Path, code: ctypes.CDLL) -> None:
        path = os.environ.get("KFORGE_EMULATOR_FINDINGS")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self.descriptor = os.open(path, flags) if path else os.memfd_create("kforge-races")
        self._read = os.lseek(self.descriptor, 0, os.SEEK_END)
        self._symbols = Symbols.read(library)
        base = runtime.kforge_emulator_base
        base.restype, base.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
        self._base = base(ctypes.cast(code.kforge_emulator_entries, ctypes.c_void_p))
        self.read_bytes = self.written_bytes = 0

    def table(self, buffers: Iterable[Region]) -> ctypes.Array[_Buffer]:
        """The memory that kernels may touch; all memory where the first row has 0 bytes (extent unknown)."""
        given = [_Buffer(r.name.encode(), r.address, r.nbytes) for r in buffers] or [_Buffer(b"memory", None, 0)]
        own = [_Buffer(name.encode(), self._base + at, size) for name, at, size in self._symbols.variables]
        return (_Buffer * (len(given) + len(own)))(*given, *own)

    def begin(self) -> None:
        """What is recorded from here on is of the next launch; several libraries may record in one file."""
        self._read = os.lseek(self.descriptor, 0, os.SEEK_END)

    def take(self, kernel: str, order: int) -> tuple[tuple[Finding, ...], tuple[Access, ...]]:
        """Findings and profile since `begin`."""
        end = os.lseek(self.descriptor, 0, os.SEEK_END)
        text = os.pread(self.descriptor, end - self._read, self._read).decode(errors="replace")
        self._read = end
        rows = [record.split("\x1f") for record in text.split("\x1e")[:-1]]
        for row in rows:
            if row[0] == "total":
                self.read_bytes, self.written_bytes = int(row[1]), int(row[2])
        findings = [replace(f, kernel=kernel, order=order) for f in parse(rows, self._symbols)]
        return tuple(findings), profile(rows, self._symbols)


def _place(text: str, symbols: Symbols) -> tuple[str, int]:
    """A record's place: @offset of an instrumented access, or file:line."""
    if text.startswith("@"):
        return symbols.lines.get(text[1:], ("", 0))
    file, _, line = text.rpartition(":")
    return file, int(line or 0)


def parse(rows: Sequence[Sequence[str]], symbols: Symbols) -> list[Finding]:
    """Records of runtime/tracer.cpp as findings without kernel and order."""
    found: dict[tuple[object, ...], Finding] = {}
    for row in rows:
        if row[0] not in ("race", "same_value", "out_of_bounds"):
            continue
        kind, first, at_first, second, at_second, size, buffer, offset, nbytes, thread1, block1, thread2, block2 = row
        file, line = _place(at_second, symbols)
        other_file, other_line = _place(at_first, symbols) if at_first else ("", 0)
        finding = Finding(
            kind=kind, kernel="", file=file, line=line, access=second, size=int(size), buffer=buffer,
            offset=int(offset), nbytes=int(nbytes), thread=thread2, block=block2, other_file=other_file,
            other_line=other_line, other_access=first, other_thread=thread1, other_block=block1,
        )  # fmt: skip
        # Both orders of one pair, and the parts of a copy, are one finding.
        pair = frozenset([(file, line, second), (other_file, other_line, first)])
        found.setdefault((kind, pair, buffer), finding)
    return list(found.values())


def profile(rows: Sequence[Sequence[str]], symbols: Symbols) -> tuple[Access, ...]:
    """Lines in the order of the source; accesses of one line, space, kind and size are added up."""
    lines: dict[tuple[str, int, str, str, int], list[int]] = {}
    for row in rows:
        if row[0] != "line":
            continue
        file, line = _place(row[1], symbols)
        access = {1: "read", 2: "write", 3: "read+write"}[int(row[3])]
        sums = lines.setdefault((file, line, row[2], access, int(row[4])), [0] * 5)
        for i, value in enumerate(row[5:]):
            sums[i] += int(value)
    return tuple(Access(*key, *sums) for key, sums in sorted(lines.items()))
