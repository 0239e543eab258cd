"""Randomness for kernels: one seed pair from torch's generator, the kernel's own numbers by counter."""

from __future__ import annotations

import torch

from kforge.errors import LaunchError


def philox(n: int, device: torch.device | str | None = None) -> torch.Tensor:
    """Two int64 on the device, (seed, offset), from which a kernel derives its n numbers by counter.

    Drawn by one torch op from torch's generator: reproducible under `torch.manual_seed`, the generator's state
    advances, and a CUDA graph draws anew on each replay. Pass the tensor as `const long long* seed`; number i is
    block (offset + i / 4), lane i % 4 of Philox-4x32-10 with key `seed` (`#include <kforge/philox.h>`).
    device: torch's current CUDA device where there is one, else the CPU.
    """
    if n < 0:
        raise LaunchError(f"philox({n}): the number of values cannot be negative")
    if device is None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    return torch.randint(-(2**63), 2**63 - 1, (2,), dtype=torch.int64, device=device)
