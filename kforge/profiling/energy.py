"""Energy per call: NVML's counter over a long steady run of one side, the other idle.

The counter moves in steps of tens of milliseconds, so a run is cut at two of its steps and the calls between them are
counted. Idle power is part of the figure: a call that takes longer keeps the GPU up longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.profiling.evidence import Power
from kforge.profiling.gpu_state import gpu_state, nvml_handle
from kforge.profiling.sources import Unavailable

if TYPE_CHECKING:
    from kforge.task.call import Call
    from kforge.worker import Child

RUN_S = 3.0  # of one side
CLOCKS_S = 0.05  # of calls before the clocks are read, where energy is not asked for
_CHUNK_S = 0.01  # between two looks at the counter: shorter than its step


@dataclass(frozen=True)
class Energy:
    """Millijoules of one call, over so many calls and seconds."""

    mj: float
    calls: int
    seconds: float


def counter(device: str) -> Callable[[], int] | str:
    """A function that reads the GPU's total energy in mJ, or in words why there is none."""
    handle = nvml_handle(device)
    if isinstance(handle, str):
        return handle
    import pynvml

    def read() -> int:
        return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))

    try:
        read()
    except pynvml.NVMLError as error:
        return f"NVML: {error}"
    return read


def power(child: Child, call: Call, device: str, *, energy: bool) -> Power:
    """Watts, clocks and throttle reasons under the candidate's calls, and with `energy` what one of them takes.

    child: in phase run, loaded. Unavailable where NVML does not answer.
    """
    read = counter(device)
    if isinstance(read, str):
        raise Unavailable("NVML", read, "install nvidia-ml-py")
    armed = child.arm(call, ("plain",))
    if energy:
        found = energy_per_call(lambda n: child.replay(n, "plain"), armed.once_s, read)
    else:  # long enough for the clocks to be those of the work
        found = None
        child.replay(max(1, min(5000, int(CLOCKS_S / max(armed.once_s, 1e-5)))), "plain")
    state = gpu_state(device)
    return Power(found.mj if found else None, state.power_w, state.sm_mhz, state.max_sm_mhz, state.throttle)


def energy_per_call(
    run: Callable[[int], Any],
    call_s: float,
    read: Callable[[], int],
    run_s: float = RUN_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Energy | None:
    """Energy of one call by `run(n)`, which makes n calls and waits for the last. call_s: about how long one takes.

    read: the counter in mJ. None when the counter never moved twice within `run_s`.
    """
    chunk = max(1, round(_CHUNK_S / max(call_s, 1e-7)))
    begin = clock()
    previous, calls = read(), 0
    first: tuple[int, int, float] | None = None
    last: tuple[int, int, float] | None = None
    while clock() - begin < run_s:
        run(chunk)
        calls += chunk
        now = read()
        if now != previous:
            last = (now, calls, clock())
            first = first or last
            previous = now
    if first is None or last is None or last[1] == first[1]:
        return None
    count = last[1] - first[1]
    return Energy((last[0] - first[0]) / count, count, last[2] - first[2])
