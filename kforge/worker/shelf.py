"""The shared buffers of one child, by use: handed out, idle for the next call, given back when they hold too much."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence

from kforge.worker.tensors import SEGMENT, Buffer, DeviceMemory, Packed, make_memfd

_BATCH = 32  # buffers announced in one message (64 descriptors fit)
IDLE_BYTES = 2 << 30
# Allocators of users give addresses of this alignment; a page's or a segment's beginning would tell the judge's memory.
ALIGNED, PAGES = 512, 8 << 12  # pages lie anywhere, segments at multiples of their size


class Shelf:
    """`attach(buffers, descriptors)` and `detach(ids)` tell the child. memory: the judge's on the GPU, else None."""

    def __init__(
        self,
        memory: DeviceMemory | None,
        attach: Callable[[Sequence[Buffer], Sequence[int]], object],
        detach: Callable[[Sequence[int]], object],
    ) -> None:
        self.memory, self._attach, self._detach = memory, attach, detach
        self.moved = memory is None  # whether storages begin anywhere in their allocations
        self._next_id = 0
        self._all: dict[int, Buffer] = {}
        self._idle: list[Buffer] = []

    def take_for(self, packed: Packed) -> list[Buffer]:
        """One buffer for each storage of a packed tree."""
        return self.take(sizes_of(packed))

    def take(self, sizes: Sequence[tuple[int, str]]) -> list[Buffer]:
        """Buffers of these bytes on these devices ("cpu", "cuda"): idle ones first, longest idle first, else new."""
        found: list[Buffer] = []
        fresh: list[Buffer] = []
        try:
            for size, side in sizes:
                buffer = next((b for b in self._idle if b.nbytes == size and b.side == side), None)
                if buffer is not None:
                    self._idle.remove(buffer)
                else:
                    buffer = self._make(size, side)
                    fresh.append(buffer)
                found.append(buffer)
        except OSError:  # no descriptor left: those that were taken for nothing are given back
            for buffer in fresh:
                if buffer.fd >= 0:
                    os.close(buffer.fd)
                self._all.pop(buffer.id).release()
            raise
        for start in range(0, len(fresh), _BATCH):
            part = fresh[start : start + _BATCH]
            fds = [b.fd for b in part if b.fd >= 0]
            try:
                self._attach(part, fds)
            finally:
                for buffer in part:
                    buffer.fd = -1
                for fd in fds:
                    os.close(fd)
        return found

    def _make(self, size: int, side: str) -> Buffer:
        self._next_id += 1
        on_host = side == "cpu" or self.memory is None
        lead = ALIGNED * secrets.randbelow((PAGES if on_host else SEGMENT) // ALIGNED) if self.moved else 0
        if on_host:
            buffer = make_memfd(self._next_id, size, lead)
        else:
            buffer = self.memory.make(self._next_id, size, lead)  # type: ignore[union-attr]
        self._all[buffer.id] = buffer
        return buffer

    def give(self, buffers: list[Buffer]) -> None:
        """Back to the idle ones, and empty the list; the longest idle go while they hold over 2 GiB."""
        self._idle += buffers
        buffers.clear()
        excess = []
        while self._idle and sum(b.nbytes for b in self._idle) > IDLE_BYTES:
            excess.append(self._idle.pop(0))
        if excess:
            self._detach([b.id for b in excess])
            for buffer in excess:
                self._all.pop(buffer.id).release()

    def close(self) -> None:
        """Free everything; the child must be dead."""
        for buffer in self._all.values():
            buffer.release()
        self._all, self._idle = {}, []


def sizes_of(packed: Packed) -> list[tuple[int, str]]:
    """(bytes, device type) of each storage."""
    return [(storage.numel(), storage.device.type) for storage in packed.storages]
