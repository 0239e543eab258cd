"""Keeps what emulated launches are given, so that they can be run again, instrumented, in a process of their own."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kforge.kernel.emulator.findings import Finding, Region
from kforge.kernel.emulator.job import Buffer, Launch, Map, Pointer, Scalar
from kforge.kernel.tensor_map import emulated_pointer, with_pointer

_KEPT_ALIGNMENT = 16  # bytes; an address keeps its remainder, so what is aligned or not stays so

Origin = tuple[str, str, tuple[Path, ...]]  # source, file name, include folders


@dataclass
class Recording:
    """Launches with the memory they saw, each with buffers of its own; equal launches once.

    limit: bytes kept at the most; most_s: seconds of launches after which none is added. left_out: kernels that were
    launched beyond either. seconds: of processor time that those kept took, whatever else the machine does. only: they
    are kept and do not run, since they would end the process; memory that nobody else writes in between is then one
    buffer for all of them, so that a later launch reads what an earlier one has written when they run.
    """

    limit: int = 64 << 20
    most_s: float = 60.0
    only: bool = False
    launches: list[Launch] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _held: int = 0
    _added: bool = False
    _seen: set[tuple[Any, ...]] = field(default_factory=set)
    _shared: dict[tuple[int, int], Buffer] = field(default_factory=dict)  # of `only`: by address and size
    _called: dict[tuple[int, str], str] = field(default_factory=dict)  # (launch, buffer) -> its parameter

    def add(self, origin: Origin, launch: Launch, args: Sequence[Any], regions: Sequence[Region]) -> None:
        """One launch that is about to run. args: ctypes values; regions: the memory behind its pointers."""
        given = tuple(None if isinstance(a, ctypes.c_void_p) else bytes(a) for a in args)
        plain = tuple(with_pointer(g, 0) if g is not None and emulated_pointer(g) is not None else g for g in given)
        sizes = tuple((r.name, r.nbytes, r.address % _KEPT_ALIGNMENT) for r in regions)
        key = (origin[0], launch.kernel, launch.grid, launch.block, launch.shared, launch.cluster, plain, sizes)
        self._added = key not in self._seen
        if not self._added:
            return
        blocks = _joined(regions)
        size = sum(block.nbytes for block in blocks)
        if self._held + size > self.limit or self.seconds > self.most_s:
            self.left_out.append(launch.kernel)
            self._added = False
            return
        self._seen.add(key)
        number = len(self.launches)
        names = [self._keep(number, block) for block in blocks]
        pointers = tuple(_argument(a, raw, names, blocks) for a, raw in zip(args, given, strict=True))
        self.launches.append(
            Launch(
                origin[0], origin[1], launch.kernel, launch.grid, launch.block, pointers, launch.shared,
                launch.cluster, launch.cooperative, origin[2],
            )
        )  # fmt: skip

    def called(self, launch: int, buffer: str) -> str:
        """The parameter by which a kept launch knows a buffer; empty for one that it was not given."""
        return self._called.get((launch, buffer), "")

    def _keep(self, number: int, block: Region) -> str:
        """The name of the buffer that holds what lies in this memory now."""
        front = bytes(block.address % _KEPT_ALIGNMENT)
        data = front + ctypes.string_at(block.address, block.nbytes)
        place = (block.address, block.nbytes)
        known = self._shared.get(place) if self.only else None
        if known is None or known.data != data:
            known = Buffer(_name(number, block), len(data), data)
            self.buffers.append(known)
            self._held += block.nbytes
            self._shared[place] = known
        self._called[number, known.name] = block.name
        return known.name

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Around the launch itself, after `add`. One that goes beyond `most_s` is taken back, unless it is the only."""
        before = len(self.launches)
        begin = time.process_time()
        yield
        took = time.process_time() - begin
        if self.seconds + took > self.most_s and before > 1 and self._added:
            number = f"{before - 1}:"
            self.left_out.append(self.launches.pop().kernel)
            self.buffers = [b for b in self.buffers if not b.name.startswith(number)]
        elif self._added:
            self.seconds += took


current: Recording | None = None


@contextlib.contextmanager
def recording(into: Recording | None = None) -> Iterator[Recording]:
    """Within, launches of the emulator in this process are added to a Recording and run as always."""
    global current
    before, current = current, into if into is not None else Recording()
    try:
        yield current
    finally:
        current = before


def _name(number: int, block: Region) -> str:
    """Of a buffer: the launch it belongs to, the bytes in front of it that keep its alignment, the parameter."""
    return f"{number}:{block.address % _KEPT_ALIGNMENT}:{block.name}"


def as_launched(finding: Finding, kept: Recording) -> dict[str, Any]:
    """A finding in a recorded launch as plain data, in the terms of the launch: the parameter, the byte within it."""
    number, front, name = ([*finding.buffer.split(":", 2), "", ""])[:3]
    if not number.isdigit() or not front.isdigit():
        return finding.as_dict()
    name = kept.called(finding.launch, finding.buffer) or name
    size = max(0, finding.nbytes - int(front))
    return replace(finding, buffer=name, offset=finding.offset - int(front), nbytes=size).as_dict()


def _joined(regions: Sequence[Region]) -> list[Region]:
    """Regions that overlap as one, named after all of them: arguments may be views of one tensor."""
    joined: list[Region] = []
    for region in sorted(regions, key=lambda r: r.address):
        last = joined[-1] if joined else None
        if last is not None and region.address < last.address + last.nbytes:
            end = max(last.address + last.nbytes, region.address + region.nbytes)
            joined[-1] = Region(f"{last.name}/{region.name}", last.address, end - last.address)
        else:
            joined.append(region)
    return joined


def _argument(value: Any, raw: bytes | None, names: Sequence[str], blocks: Sequence[Region]) -> Pointer | Scalar | Map:
    address = value.value if raw is None else emulated_pointer(raw)
    for name, block in zip(names, blocks, strict=True):
        if address is not None and block.address <= address < block.address + block.nbytes:
            offset = address - block.address + block.address % _KEPT_ALIGNMENT
            return Pointer(name, offset) if raw is None else Map(raw, name, offset)
    return Pointer(None) if raw is None else Scalar(raw)
