"""One batch of timed calls, the same code for the judge's side and the candidate's: events, L2 flush, waiting.

Made before candidate code loads, with its own handles. It measures; whether a figure is believed is decided by the
judge's wall clock (profiling/timing.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from kforge.worker import driver

_FALLBACK_L2 = 64 << 20
_HEAD_START = 200_000  # cycles, about 0.1 ms


class Timer(Protocol):
    """What both timers offer."""

    def batch(
        self, fn: Callable[[], object], iterations: int, flush: bool = True, before: Callable[[], object] | None = None
    ) -> list[float]:
        """Milliseconds of each of `iterations` calls of `fn`; `before` runs ahead of each, outside the time."""
        ...

    def wait(self) -> None:
        """Return when the device is idle."""
        ...


class GpuTimer:
    """CUDA events on the current stream, every sample after a flush of L2 and followed by a device-wide wait.

    The wait after each sample puts work on other streams into the batch's wall clock (it could otherwise hide under
    the next flush); the flush, about 70 us on an H200, gives the host time to queue the call ahead of the GPU.
    """

    def __init__(self, device: str) -> None:
        import torch

        self.device = torch.device(device)
        with torch.cuda.device(self.device):
            torch.zeros(1, device=self.device)
            l2 = getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0) or _FALLBACK_L2
            words = 2 * l2 // 4
            self._written = torch.empty(words, dtype=torch.int32, device=self.device)
            self._read = torch.ones(words, dtype=torch.float32, device=self.device)
            self._sink = torch.empty((), dtype=torch.float32, device=self.device)
            self._events = driver.Events(64)
        self._sum, self._stream, self.spin = torch.sum, torch.cuda.current_stream, torch.cuda._sleep
        self.flush()
        self.wait()

    def flush(self) -> None:
        """Evict L2: write twice its size, then read as much, or dirty lines are written back during a sample."""
        stream = self._stream(self.device).cuda_stream
        driver.fill_words(self._written.data_ptr(), self._written.numel(), 1, stream)
        self._sum(self._read, dim=0, out=self._sink)

    def wait(self) -> None:
        driver.synchronise()

    def batch(
        self, fn: Callable[[], object], iterations: int, flush: bool = True, before: Callable[[], object] | None = None
    ) -> list[float]:
        if iterations > len(self._events):
            self._events = driver.Events(iterations)
        events, wait = self._events, driver.synchronise
        stream = self._stream(self.device).cuda_stream
        wait()
        for index in range(iterations):
            if before is not None:
                before()
            if flush:
                self.flush()
            else:
                self.spin(_HEAD_START)  # or the sample would hold the host's time to launch
            events.start(index, stream)
            fn()
            events.stop(index, stream)
            wait()
        return [events.milliseconds(index) for index in range(iterations)]


class HostTimer:
    """The host's monotonic clock, for calls that run on the CPU; there is no flush."""

    def batch(
        self, fn: Callable[[], object], iterations: int, flush: bool = True, before: Callable[[], object] | None = None
    ) -> list[float]:
        clock = time.perf_counter_ns
        samples = []
        for _ in range(iterations):
            if before is not None:
                before()
            begin = clock()
            fn()
            samples.append((clock() - begin) * 1e-6)
        return samples

    def wait(self) -> None:
        return None


def make_timer(device: str) -> Timer:
    """The timer for "cpu" or "cuda:N"."""
    return HostTimer() if device == "cpu" else GpuTimer(device)


def graphed(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    """`fn` as a CUDA graph over static copies of its inputs; a call copies the inputs in, then replays.

    The copies are inside what is timed, for baseline and candidate alike (CONTRACTS 5). Errors of the capture pass on.
    """
    import torch
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((args, kwargs))
    moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_cuda]
    static = list(leaves)
    for i in moving:
        static[i] = leaves[i].clone()
    static_args, static_kwargs = pytree.tree_unflatten(static, spec)
    graph, output = _capture(lambda: fn(*static_args, **static_kwargs))
    copies = [(static[i], leaves[i]) for i in moving]

    def call() -> Any:
        for target, source in copies:
            target.copy_(source)
        graph.replay()
        return output

    return call


def replayed(fn: Callable[[], Any], calls: int) -> Callable[[], Any]:
    """A CUDA graph of `calls` successive calls of `fn`, for kernels too short to be timed one by one.

    A call replays it and returns the last captured call's output.
    """

    def several() -> Any:
        return [fn() for _ in range(calls)][-1]

    graph, output = _capture(several)

    def call() -> Any:
        graph.replay()
        return output

    return call


def _capture(fn: Callable[[], Any]) -> tuple[Any, Any]:
    """Warm up on a side stream as torch asks, then capture."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            fn()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = fn()
    torch.cuda.synchronize()
    return graph, output
