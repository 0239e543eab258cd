"""What a GPU was doing while it was timed: clocks, throttling, power, other processes; by NVML where it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GpuState:
    """clocks in MHz, power in W, temperature in Celsius; throttle: reasons in words; others: foreign process ids.

    reason: why nothing could be read (then all else is empty).
    """

    name: str = ""
    driver: str = ""
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    max_sm_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()
    others: tuple[int, ...] = ()
    reason: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of a timing must know, in words."""
        found = [f"clocks throttled: {', '.join(self.throttle)}"] if self.throttle else []
        found += [f"{len(self.others)} other processes on the GPU"] if self.others else []
        return tuple(found)

    def as_dict(self) -> dict[str, str]:
        """For the report's environment."""
        values = {k: v for k, v in vars(self).items() if v not in (None, "", ())}
        return {f"gpu_{k}": ", ".join(map(str, v)) if isinstance(v, tuple) else str(v) for k, v in values.items()}


_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}


def gpu_state(device: str, own: tuple[int, ...] = ()) -> GpuState:
    """Read the state of "cuda:N" now; processes in `own` are not foreign. `reason` says what is missing."""
    if device == "cpu":
        return GpuState(reason="no GPU")
    try:
        import pynvml
    except ImportError:
        return GpuState(reason="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuState(reason=f"NVML: {error}")
    try:
        return _read(pynvml, device, own)
    except pynvml.NVMLError as error:
        return GpuState(reason=f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any, device: str, own: tuple[int, ...]) -> GpuState:
    import torch

    uuid = str(torch.cuda.get_device_properties(device).uuid)
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")

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
        others=tuple(sorted(p.pid for p in processes if p.pid not in own)),
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
