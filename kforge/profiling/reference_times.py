"""What the baselines take, the judge alone on the GPU: the numerator of the headroom. Compiling may overlap other work.

A profile's figures: one batch each, cold inputs. Verdicts come from timing.py. A profile waits for no compiler beyond
`LIMIT_S`; eager is timed before one starts, since a busy compiler slows every launch of its process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kforge.profiling.baselines import DECIDING, make_baseline

if TYPE_CHECKING:
    from kforge.task import Task

LIMIT_S = 10.0  # from the start until what is not compiled is left out
_CALLS = 20
_BATCH_S = 0.2


class ReferenceTimes:
    """Baselines of one variant of a task, made in a thread of their own from the moment this is.

    notes: baselines that were left out, in words. limit_s: seconds until what is not compiled is left out.
    """

    def __init__(
        self, task: Task, variant: int, device: str, names: Sequence[str] = DECIDING, limit_s: float = LIMIT_S
    ) -> None:
        self.task, self.device, self.names, self.limit_s = task, device, tuple(names), limit_s
        self.call = task.make_call(variant, 1, device)
        self.notes: list[str] = []
        self._early: dict[str, float] = {}
        self._made: dict[str, Callable[..., Any]] = {}
        self._failed: list[Exception] = []
        self._first = threading.Event()  # the first of them, eager, is timed, or will not be
        self._deadline = time.monotonic() + limit_s
        modules = {name: task.make_reference(0, device) for name in names}  # the user's code: not in a thread
        # a daemon: a compiler that takes minutes does not keep the program from ending
        self._maker = threading.Thread(target=self._make, args=(modules,), daemon=True, name="baselines")
        self._maker.start()

    def _make(self, modules: Mapping[str, Any]) -> None:
        import torch

        from kforge.task import matmul_precision

        with torch.no_grad(), matmul_precision(self.task.precision), _on(self.device):
            for name, module in modules.items():
                function = make_baseline(name, module)
                try:
                    function(*self.call.args, **self.call.kwargs)
                except Exception as error:  # a compiler may raise anything; eager is always there
                    if name == "eager":
                        self._failed.append(error)
                    self._first.set()
                    if self._failed:
                        return
                    self.notes.append(f"baseline {name} does not run: {type(error).__name__}")
                    continue
                if name == "eager" and len(modules) > 1:
                    self._early[name] = self._time({name: function})[name]
                self._made[name] = function
                self._first.set()

    def wait(self) -> bool:
        """Until everything is compiled, or the limit: what comes next has the host alone. Whether all is ready."""
        self._maker.join(max(0.0, self._deadline - time.monotonic()))
        if self._failed:
            raise self._failed[0]
        return not self._maker.is_alive()

    def measure(self) -> dict[str, float]:
        """Median microseconds of each baseline that is ready within the limit; the others are named in `notes`."""
        if self.wait():
            return self._time(self._made)
        self._first.wait()  # eager itself may take longer than the limit
        late = [name for name in self.names if name not in self._made]
        if not self._early or not late:  # it is the only one, or all were ready in the last moment
            self._maker.join()
            self.wait()
            return self._time(self._made)
        self.notes += [f"baseline {name} is left out: not compiled within {self.limit_s:g} s" for name in late]
        return dict(self._early)

    def _time(self, made: Mapping[str, Callable[..., Any]]) -> dict[str, float]:
        """One after the other, the GPU alone."""
        import torch

        from kforge.task import matmul_precision
        from kforge.worker import gpu_lock
        from kforge.worker.timer import make_timer

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
        """Millijoules of one call of a baseline over a steady run of some seconds; None where NVML does not say, or a
        compiler is still at work.
        """
        import torch

        from kforge.profiling.energy import counter, energy_per_call
        from kforge.task import matmul_precision
        from kforge.worker import gpu_lock

        if not self.wait():  # the compiler still works
            return None
        read, function = counter(self.device), self._made.get(name)
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


def _on(device: str) -> Any:
    """The device of what follows; nothing on the CPU."""
    import contextlib

    import torch

    return contextlib.nullcontext() if device == "cpu" else torch.cuda.device(device)
