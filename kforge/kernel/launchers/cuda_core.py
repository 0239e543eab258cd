"""Launches through NVIDIA's cuda.core."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from kforge.kernel.build.request import Build
from kforge.kernel.ctypes_table import Scalar
from kforge.kernel.launchers import driver
from kforge.kernel.launchers.base import Geometry, Launch, packing

_threads = threading.local()


class CudaCore:
    """cuda.core's `launch`: 6.7 us a call on an H200 machine."""

    name = "cuda_core"
    clusters = True
    tensor_maps = False

    def __init__(self) -> None:
        # (device, handle) -> bytes opted into; the function is kept so that its handle is not given out again
        self._shared: dict[tuple[int, int], tuple[int, Any]] = {}

    def is_available(self) -> tuple[bool, str]:
        parts = ("cuda", "cuda.core", "cuda.bindings")
        if not all(importlib.util.find_spec(part) for part in parts):  # in order: a child's look-up imports its parent
            return False, "no cuda-core with cuda-bindings; install the extra kforge-cuda[cu13] (or cu12)"
        usable, reason = driver.Driver().is_available()
        if not usable:
            return False, reason
        import cuda.core

        return True, f"cuda.core {cuda.core.__version__}, {reason}"

    def load(self, build: Build, symbol: str, device: int) -> Any:
        from cuda.core import Device, ObjectCode

        Device(device).set_current()
        return ObjectCode.from_cubin(build.cubin).get_kernel(symbol)

    def bind(self, function: Any, slots: tuple[Scalar | None, ...], geometry: Geometry, device: int) -> Launch:
        from cuda.core import LaunchConfig, launch

        cluster = geometry.cluster
        handle = int(function.handle)
        if geometry.shared > self._shared.get((device, handle), (0, None))[0]:
            set_attribute = driver.library().cuKernelSetAttribute
            status = set_attribute(driver.MAX_DYNAMIC_SHARED, geometry.shared, handle, device)
            driver.check_shared(status, geometry.shared, device)
            self._shared[device, handle] = (geometry.shared, function)
        options: dict[str, Any] = {}
        if cluster != (1, 1, 1):
            if cluster[0] * cluster[1] * cluster[2] > 8:
                status = driver.library().cuKernelSetAttribute(driver.NON_PORTABLE_CLUSTER, 1, handle, device)
                driver.check(status, f"a cluster of {cluster}")
            options["cluster"] = cluster
        if geometry.cooperative:
            options["is_cooperative"] = True
        # cuda.core counts the grid in clusters.
        grid = tuple(g // c for g, c in zip(geometry.grid, cluster, strict=True))
        config = LaunchConfig(grid=grid, block=geometry.block, shmem_size=geometry.shared, **options)
        wrap: list[Callable[[Any], Any]] = [int if s is None else s.ctypes_class for s in slots]

        check = packing(slots).pack

        def run(stream: int, values: Sequence[Any]) -> None:
            check(*values)
            if not hasattr(_threads, "ready"):  # cuda.core needs a current context, which a fresh thread lacks
                driver.make_current(device)
                _threads.ready = True
            launch(_stream(stream), config, function, *[w(v) for w, v in zip(wrap, values, strict=True)])

        return run


@lru_cache(maxsize=256)
def _stream(handle: int) -> Any:
    from cuda.core import LEGACY_DEFAULT_STREAM, Stream

    return Stream.from_handle(handle) if handle else LEGACY_DEFAULT_STREAM
