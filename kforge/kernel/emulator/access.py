"""What one line of a kernel's source moves: the record of a trace, of the emulator's or of a GPU's profiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Access:
    """All accesses of one kind that a source line makes in one launch.

    space: global or shared. access: read, write or read+write (an atomic). size: bytes of one thread's access, 0 where
    unknown. executions: by threads, over all blocks; nbytes: of those. requests: by warps (in the emulator over a
    sample of the blocks). units: what these moved, 32-byte sectors of global memory or wavefronts of shared memory;
    ideal: the least for the same bytes.
    """

    file: str
    line: int
    space: str
    access: str
    size: int
    executions: int
    nbytes: int
    requests: int
    units: int
    ideal: int

    @property
    def units_per_request(self) -> float:
        """Sectors or wavefronts that a warp's access needs."""
        return self.units / self.requests if self.requests else 0.0

    @property
    def excess(self) -> float:
        """units over ideal: 1.0 is fully coalesced, or free of bank conflicts."""
        return self.units / self.ideal if self.ideal else 1.0
