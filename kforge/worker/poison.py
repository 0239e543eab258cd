"""What fresh memory of a candidate's process holds on the CPU: one of two byte patterns, so that no element that was
never written looks right.

glibc's M_PERTURB fills what malloc hands out and overwrites what free gets back. Large numbers of both signs: neither a
maximum nor a minimum swallows both. On a GPU the allocator of the child does the same.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PATTERNS = (0x7F, 0xFE)  # as float32 3.4e38 and -1.7e38
ZEROS = 0  # as fresh memory often is where nobody watches: what a candidate does only there shows
_M_PERTURB = -6


def set_pattern(pattern: int) -> str:
    """From now on fresh memory of this process consists of this byte; "in force ..." or why not."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not mallopt(_M_PERTURB, pattern ^ 0xFF):  # free gets the complement
        return "absent: this C library has no M_PERTURB"
    return "in force: fresh memory holds one of two patterns"


def unwritten(x: torch.Tensor, pattern: int) -> torch.Tensor:
    """Which elements of a contiguous tensor on the CPU consist of the pattern's byte; a flat mask."""
    import torch

    real = torch.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x
    dense = real.contiguous()  # a single element keeps its stride, whatever that is
    raw = dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)
    return (raw.view(x.numel(), -1) == pattern).all(1) if x.numel() else torch.zeros(0, dtype=torch.bool)
