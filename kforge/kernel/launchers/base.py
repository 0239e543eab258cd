"""What a launcher is: it loads a cubin on a device and binds a kernel to a geometry."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kforge.kernel.build.request import Build
from kforge.kernel.ctypes_table import POINTER_SLOT, Scalar

# launch(stream handle, values in parameter order: addresses as ints, scalars as Python numbers)
Launch = Callable[[int, Sequence[Any]], None]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Geometry:
    """How a kernel is launched: blocks, threads, bytes of dynamic shared memory, blocks a cluster, cooperative."""

    grid: Dim3
    block: Dim3
    shared: int = 0
    cluster: Dim3 = (1, 1, 1)
    cooperative: bool = False


def packing(slots: Sequence[Scalar | None]) -> struct.Struct:
    """Packs values into 8-byte slots, refusing what does not fit (ctypes and others would wrap around)."""
    return struct.Struct("<" + "".join(POINTER_SLOT if s is None else s.slot for s in slots))


def offsets(slots: Sequence[Scalar | None]) -> list[int]:
    """Where each slot begins in what `packing` packs, and the whole size."""
    return [packing(slots[:i]).size for i in range(len(slots) + 1)]


class Launcher(Protocol):
    """A way to start kernels. Members of the registry in `kforge.kernel.launchers`."""

    name: str
    clusters: bool  # whether it can launch thread-block clusters
    tensor_maps: bool  # whether it can pass 128 bytes by value

    def is_available(self) -> tuple[bool, str]:
        """Whether it can be used here, and why or why not."""
        ...

    def load(self, build: Build, symbol: str, device: int) -> Any:
        """The function `symbol` of a cubin, loaded on CUDA device `device`, which is torch's current one."""
        ...

    def bind(self, function: Any, slots: tuple[Scalar | None, ...], geometry: Geometry, device: int) -> Launch:
        """A callable that launches on a stream of `device`, its current device. slots: None for a pointer."""
        ...
