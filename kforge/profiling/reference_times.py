"""What the baselines take, the judge alone on the GPU: the numerator of the headroom. Compiling may overlap other work.

A profile's figures: one batch each, cold inputs. Verdicts come from timing.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kforge.profiling.baselines import DECIDING, make_baseline

if TYPE_CHECKING:
    from kforge.task import Task

_CALLS = 20
_BATCH_S = 0.2


class ReferenceTimes:
    """Baselines of one variant of a task, compiled in a thread of their own from the moment this is made.

    notes: baselines that do not run, in words.
    """

    def __init__(self, task: Task, variant: int, device: str, names: Sequence[str] = DECIDING) -> None:
        self.task, self.device = task, device
        self.call = task.make_call(variant, 1, device)
        self.notes: list[str] = []
        self._pool = ThreadPoolExecutor(1)
        modules = {name: task.make_reference(0, device) for name in names}  # the user's code: not in a thread
        self._made: Future[dict[str, Callable[..., Any]]] = self._pool.submit(self._make, modules)

    def _make(self, modules: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
        import torch

        from kforge.task import matmul_precision

        made: dict[str, Callable[..., Any]] = {}
        with torch.no_grad(), matmul_precision(self.task.precision), torch.cuda.device(self.device):
            for name, module in modules.items():
                function = make_baseline(name, module)
                try:
                    function(*self.call.args, **self.call.kwargs)
                except Exception as error:  # a compiler may raise anything; eager is always there
                    if name == "eager":
                        raise
                    self.notes.append(f"baseline {name} does not run: {type(error).__name__}")
                    continue
                made[name] = function
            torch.cuda.synchronize(self.device)
        return made

    def wait(self) -> None:
        """Until everything is compiled: what comes next has the host alone."""
        self._made.result()

    def measure(self) -> dict[str, float]:
        """Median microseconds of each, one after the other."""
        import torch

        from kforge.task import matmul_precision
        from kforge.worker import gpu_lock
        from kforge.worker.timer import make_timer

        made = self._made.result()
        times: dict[str, float] = {}
        with torch.no_grad(), matmul_precision(self.task.precision), gpu_lock(self.device):
            timer = make_timer(self.device)
            for name, function in made.items():

                def run(function: Callable[..., Any] = function) -> Any:
                    return function(*self.call.args, **self.call.kwargs)

                once = timer.batch(run, 1)[0]
                count = max(3, min(_CALLS, int(_BATCH_S * 1e3 / max(once, 1e-3))))
                times[name] = 1e3 * float(sorted(timer.batch(run, count))[count // 2])
        return times

    def energy(self, name: str = "eager") -> float | None:
        """Millijoules of one call of a baseline over a steady run of some seconds; None where NVML does not say."""
        import torch

        from kforge.profiling.energy import counter, energy_per_call
        from kforge.task import matmul_precision
        from kforge.worker import gpu_lock

        read, function = counter(self.device), self._made.result().get(name)
        if isinstance(read, str) or function is None:
            return None

        def run(calls: int) -> None:
            for _ in range(calls):
                function(*self.call.args, **self.call.kwargs)
            torch.cuda.synchronize(self.device)

        with torch.no_grad(), matmul_precision(self.task.precision), gpu_lock(self.device):
            begin = time.perf_counter()
            run(10)
            found = energy_per_call(run, (time.perf_counter() - begin) / 10, read)
        return found.mj if found else None
