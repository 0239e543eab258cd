"""What a GPU was doing while it was timed: clocks, throttling, power, other processes; by NVML where it answers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kforge.worker.limits import descendants


@dataclass(frozen=True)
class GpuState:
    """clocks in MHz, power in W, temperature in Celsius; throttle: reasons in words; others: foreign processes.

    others: "name (pid)", or "a process outside this container" where its number means nothing here. reason: why nothing
    could be read (then all else is empty).
    """

    name: str = ""
    driver: str = ""
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    max_sm_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    reason: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of a timing must know, in words."""
        found = [f"clocks throttled: {', '.join(self.throttle)}"] if self.throttle else []
        found += [f"other users of the GPU: {', '.join(self.others)}"] if self.others else []
        return tuple(found)

    def as_dict(self) -> dict[str, str]:
        """For the report's environment."""
        values = {k: v for k, v in vars(self).items() if v not in (None, "", ())}
        return {f"gpu_{k}": ", ".join(v) if isinstance(v, tuple) else str(v) for k, v in values.items()}


_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
_OUTSIDE = "a process outside this container"


def gpu_state(device: str) -> GpuState:
    """Read the state of "cuda:N" now. This process and those below it are no foreign users."""
    handle = nvml_handle(device)
    if isinstance(handle, str):
        return GpuState(reason=handle)
    import pynvml

    try:
        return _read(pynvml, handle)
    except pynvml.NVMLError as error:
        return GpuState(reason=f"NVML: {error}")


@cache
def nvml_handle(device: str) -> Any:
    """NVML's handle of "cuda:N", or the reason in words why there is none. NVML stays initialised in this process."""
    if device == "cpu":
        return "no GPU"
    try:
        import pynvml
    except ImportError:
        return "nvidia-ml-py is not installed"
    import torch

    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        return pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    except pynvml.NVMLError as error:
        return f"NVML: {error}"


def _read(nvml: Any, handle: Any) -> GpuState:
    def optional(read: Any, *args: Any) -> Any:
        try:
            return read(handle, *args)
        except nvml.NVMLError:
            return None

    bits = optional(nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
    processes = optional(nvml.nvmlDeviceGetComputeRunningProcesses) or []
    power = optional(nvml.nvmlDeviceGetPowerUsage)
    return GpuState(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        sm_mhz=optional(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        memory_mhz=optional(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        max_sm_mhz=optional(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        power_w=None if power is None else power / 1000,
        temperature_c=optional(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        throttle=tuple(name for bit, name in _REASONS.items() if bits & bit),
        others=foreign_users([p.pid for p in processes]),
    )


def foreign_users(pids: list[int], own: int | None = None) -> tuple[str, ...]:
    """The users among these process ids that are neither `own` (default: this process) nor below it, in words.

    NVML counts processes in the host's numbers: where a container has its own, ours are not among them. Then as many
    as we are known to run are taken for ours, and the rest is counted without names.
    """
    own = os.getpid() if own is None else own
    family = {own, *descendants(own)}
    if own in pids:
        return tuple(f"{_command(pid)} ({pid})" for pid in sorted(set(pids) - family))
    return (_OUTSIDE,) * max(0, len(set(pids)) - len(family))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "process"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
