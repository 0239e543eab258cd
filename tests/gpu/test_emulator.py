"""The emulator against the GPU: the same kernels on the same inputs give the same values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.kernel import Kernel

pytestmark = pytest.mark.gpu
SOURCES = Path(__file__).parent.parent / "kernel" / "emulator" / "sources"


def integers(*shape: int, dtype: torch.dtype = torch.int32, high: int = 90) -> torch.Tensor:
    """Seeded small integers: sums of them are exact in every order."""
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


CASES = {
    "shuffles": ("warps", 1, 96, {}, lambda: (integers(96), torch.zeros(4, 96, dtype=torch.int32), 16)),
    "votes": ("warps", 1, 64, {}, lambda: (torch.zeros(64, 12, dtype=torch.uint32),)),
    "barrier_votes": ("warps", 1, 100, {}, lambda: (torch.zeros(100, 3, dtype=torch.int32),)),
    "transpose": ("warps", (3, 3), (32, 8), {}, lambda: (torch.randn(96, 96), torch.zeros(96, 96), 96)),
    "early_exit": ("warps", 1, 256, {}, lambda: (torch.zeros(256, dtype=torch.int32), 100)),
    "integers": ("values", 1, 1, {}, lambda: (torch.zeros(64, dtype=torch.float64),)),
    "halves": ("values", 4, 128, {}, lambda: (torch.linspace(-6, 6, 400), torch.zeros(10, 400), 400)),
    "tiles": ("groups", 1, 64, {}, lambda: (integers(64), torch.zeros(6, 64, dtype=torch.int32), 64)),
    "cluster_sum_at_launch": (
        "groups",
        32,
        32,
        {"cluster": (4, 1, 1), "shared": 160},
        lambda: (1 + integers(32, 40, dtype=torch.float32, high=8), torch.zeros(32, 40), 40),
    ),
    "ptx_product": (
        "groups",
        1,
        32,
        {},
        lambda: (integers(16, 16, dtype=torch.float16), integers(8, 16, dtype=torch.float16), torch.zeros(16, 8)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_same_values(name):
    """Bitwise where the arithmetic is exact, to 2 units in the last place of half where device math is approximate."""
    source, grid, block, options, make = CASES[name]
    kernel = Kernel(name, source=SOURCES / f"{source}.cu", grid=grid, block=block, **options)
    here = make()
    there = [a.cuda() if isinstance(a, torch.Tensor) else a for a in here]
    kernel(*here)
    kernel(*there)
    torch.cuda.synchronize()
    for a, b in zip(here, there, strict=True):
        if isinstance(a, torch.Tensor):
            exact = name not in ("halves", "cluster_sum_at_launch")
            torch.testing.assert_close(b.cpu(), a, rtol=0 if exact else 2e-3, atol=0 if exact else 1e-3, equal_nan=True)
