"""What the child notes about one call: operators dispatched, kernels launched, threads, memory, seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kforge.worker.beneath import Beneath

if TYPE_CHECKING:
    from torch import nn

    from kforge.worker.guard import Guard


def threads() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


@contextmanager
def gradients_enabled(module: nn.Module) -> Iterator[None]:
    """As a user's program has it, but that no parameter wants a gradient: a Kernel refuses arguments that do."""
    import torch

    wanting = [p for p in module.parameters() if p.requires_grad]
    for parameter in wanting:
        parameter.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for parameter in wanting:
            parameter.requires_grad_(True)


def settled_threads(expected: int, wait_s: float = 0.1) -> int:
    """Threads of this process, given a moment to come down to `expected`.

    A thread that was joined stays in the kernel's list for some microseconds longer than the join takes, so one look
    right after a call would now and then count the emulator's own helpers.
    """
    deadline = time.monotonic() + wait_s
    while (count := threads()) > expected and time.monotonic() < deadline:
        time.sleep(0.001)
    return count


def storage_number(tensor: Any, inputs: dict[int, int]) -> int:
    """The judge's buffer that a tensor lies in, else a number below 0 that is equal for equal storages."""
    pointer = tensor.untyped_storage().data_ptr()
    if pointer in inputs:
        return inputs[pointer]
    return -1 - (pointer or id(tensor))


class Observer:
    """Context manager around one call of the candidate.

    ops: times each ATen operator was dispatched ("aten.mm.default"; "aten.mm.hidden" where a mode was switched off
    around it); hidden_told: whether such can be told here; launches: own kernels by name; peak_bytes: of
    torch's allocator above where the call began (GPU only, else None); damage: what was written outside of every
    allocation, where they are guarded, in words; replays: of CUDA graphs; rng_advanced: the generator's state changed;
    reseeded: a generator has another seed than before; late: own kernels launched after the call had returned;
    unbuilt: builds that a call of this process, this one or one before it, has asked a read-only cache for in vain.
    """

    def __init__(self, device: str, seed: int | None, guard: Guard | None = None) -> None:
        self.device, self.seed, self.guard = device, seed, guard
        self.ops: dict[str, int] = {}
        self.replays = 0
        self._replay: Any = None
        self.fields: dict[str, Any] = {}

    def __enter__(self) -> Observer:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        from kforge.kernel import hooks

        ops = self.ops

        class Recorder(TorchDispatchMode):
            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                return False  # else the first operator imports torch._dynamo, 0.7 s in every child

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name = str(func)
                ops[name] = ops.get(name, 0) + 1
                return func(*args, **(kwargs or {}))

        if self.seed is not None:
            torch.manual_seed(self.seed)
        self.fields["threads_before"] = threads()
        self._launched = dict(hooks.launches())
        self._random, self._seeds = self._generator_state(), self._generator_seeds()
        self._bytes = 0
        if self.device != "cpu":
            torch.cuda.synchronize()
            if self.guard is None:
                torch.cuda.reset_peak_memory_stats()
                self._bytes = torch.cuda.memory_allocated()
            else:
                self.guard.begin()
            self._count_replays()
        self._recorder, self._beneath = Recorder(), Beneath()
        self._recorder.__enter__()
        self._beneath.start()
        self._begin = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        import torch

        from kforge.kernel import hooks
        from kforge.kernel.build.cache import misses

        returned = dict(hooks.launches())  # what a thread launches from here on comes late
        found = self._beneath.stop()
        self._recorder.__exit__(kind, error, tb)
        told = self._beneath.announced or not self.ops
        if told:
            self.ops |= found
        if self._replay is not None:
            torch.cuda.CUDAGraph.replay = self._replay  # type: ignore[method-assign]
        if error is not None:
            return
        peak, damage = None, ""
        if self.device != "cpu":
            torch.cuda.synchronize()
            if self.guard is None:
                peak = torch.cuda.max_memory_allocated() - self._bytes
            else:
                peak, damage = self.guard.peak_bytes, self.guard.damage()
        threads_after = settled_threads(self.fields["threads_before"])
        now = hooks.launches()
        launched = {name: count - self._launched.get(name, 0) for name, count in now.items()}
        self.fields |= {
            "seconds": time.perf_counter() - self._begin,
            "threads_after": threads_after,
            "late": sum(now.values()) - sum(returned.values()),
            "peak_bytes": peak,
            "damage": damage,
            "replays": self.replays,
            "rng_advanced": not torch.equal(self._random, self._generator_state()),
            "hidden_told": told,
            "unbuilt": misses(),
            "reseeded": self._seeds != self._generator_seeds(),
            "launches": {name: count for name, count in launched.items() if count},
        }

    def _count_replays(self) -> None:
        """What a graph launches is not ours to withhold, and no operator shows it: its replays are counted."""
        import torch

        original = self._replay = torch.cuda.CUDAGraph.replay

        def replay(graph: Any) -> None:
            self.replays += 1
            original(graph)

        torch.cuda.CUDAGraph.replay = replay  # type: ignore[method-assign, assignment]

    def _generator_state(self) -> Any:
        import torch

        return torch.get_rng_state() if self.device == "cpu" else torch.cuda.get_rng_state()

    def _generator_seeds(self) -> list[int]:
        import torch

        return [torch.initial_seed(), *([torch.cuda.initial_seed()] if self.device != "cpu" else [])]

    def as_json(self) -> dict[str, Any]:
        return {"ops": self.ops, **self.fields}
