"""Theoretical occupancy: how many warps of a kernel a multiprocessor can hold, and what limits it.

Limits per compute capability are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WARP = 32
REGISTERS = 65536  # per multiprocessor, all capabilities here
REGISTER_UNIT = 256  # registers are given out to a warp in units of this many
SHARED_UNIT = 128


@dataclass(frozen=True)
class SmLimits:
    """One multiprocessor: resident warps and blocks, shared memory in bytes, bytes the system keeps per block."""

    warps: int
    blocks: int
    shared: int
    reserved: int = 1024


LIMITS = {
    (7, 0): SmLimits(64, 32, 96 << 10, 0),
    (7, 5): SmLimits(32, 16, 64 << 10, 0),
    (8, 0): SmLimits(64, 32, 164 << 10),
    (8, 6): SmLimits(48, 16, 100 << 10),
    (8, 7): SmLimits(48, 16, 164 << 10),
    (8, 9): SmLimits(48, 24, 100 << 10),
    (9, 0): SmLimits(64, 32, 228 << 10),
    (10, 0): SmLimits(64, 32, 228 << 10),
    (10, 3): SmLimits(64, 32, 228 << 10),
    (12, 0): SmLimits(48, 24, 100 << 10),
}


@dataclass(frozen=True)
class Occupancy:
    """share: resident warps over the most possible. limit: "warps", "blocks", "registers" or "shared"."""

    share: float
    blocks: int
    limit: str


def capability(arch: str) -> tuple[int, int]:
    """("sm_90a") -> (9, 0)."""
    digits = re.sub(r"\D", "", arch)
    return int(digits[:-1]), int(digits[-1])


def occupancy(arch: str, threads: int, registers: int, shared: int) -> Occupancy | None:
    """Occupancy of blocks of `threads` with `registers` a thread and `shared` bytes (static and dynamic) a block.

    None for an architecture whose limits are not known.
    """
    limits = LIMITS.get(capability(arch))
    if limits is None:
        return None
    warps = -(-threads // WARP)
    per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    bytes_per_block = -(-(shared + limits.reserved) // SHARED_UNIT) * SHARED_UNIT
    allowed = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        # a quarter of the registers belongs to each of four schedulers; warps are given out to them in turn
        "registers": (REGISTERS // 4 // per_warp * 4) // warps if per_warp else limits.blocks,
        "shared": limits.shared // bytes_per_block if bytes_per_block else limits.blocks,
    }
    limit = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limit]
    return Occupancy(blocks * warps / limits.warps, blocks, limit)
