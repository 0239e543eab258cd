"""What this GPU can do at most: rates of DRAM, L2 and shared memory, of arithmetic, and the launch latency.

Measured once in a few seconds and cached by GPU and driver; data-sheet values, marked so, for a GPU that is absent.
Units: bytes/s, operations/s (a multiply-add counts as two), seconds.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from kforge.errors import KforgeError, MissingError

SCHEMA = 2  # 1: neither L2 nor shared memory nor special functions
CALIBRATED = "calibrated"
DATA_SHEET = "data sheet"
_SHARES = {"read": 0.0, "two to one": 1 / 3, "copy": 0.5, "write": 1.0}


@dataclass(frozen=True)
class Ceilings:
    """The ceilings of one GPU.

    bandwidth: bytes/s of DRAM traffic by the share of writes in it: read (0), two to one (1/3), copy (1/2), write (1).
    rates: operations/s by kind: fp64, fp32 (ordinary cores), tf32, bf16, fp16, fp8 (matrix cores), special (exponential
    and the like). l2_bytes: size of the L2. launch_s: least time one launch takes on the device. source: calibrated or
    data sheet. l2, shared: bytes/s of reading from the L2 and from shared memory, 0 where unknown. processors:
    multiprocessors. clocks: SM and memory MHz while it was measured.
    """

    gpu: str
    bandwidth: Mapping[str, float]
    rates: Mapping[str, float]
    l2_bytes: int
    launch_s: float
    source: str
    driver: str = ""
    methods: Mapping[str, str] = field(default_factory=dict)  # which way of measuring gave each rate
    l2: float = 0.0
    shared: float = 0.0
    processors: int = 0
    clocks: Mapping[str, int] = field(default_factory=dict)

    @property
    def read(self) -> float:
        """bytes/s of pure reading."""
        return self.bandwidth["read"]

    @property
    def write(self) -> float:
        """bytes/s of pure writing."""
        return self.bandwidth["write"]

    @property
    def copy(self) -> float:
        """bytes/s of a copy, bytes read plus bytes written."""
        return self.bandwidth["copy"]

    def mixed(self, write_share: float) -> float:
        """bytes/s of traffic of which `write_share` (0 to 1) is written.

        Between the measured mixtures the time per byte is taken as linear: a copy's rate alone would be wrong for
        work that mostly reads, which runs faster.
        """
        points = sorted((_SHARES[name], 1 / rate) for name, rate in self.bandwidth.items())
        for (x0, y0), (x1, y1) in pairwise(points):
            if x0 <= write_share <= x1:
                return 1 / (y0 + (y1 - y0) * (write_share - x0) / (x1 - x0))
        raise KforgeError(f"a share of writes lies between 0 and 1, not at {write_share}")

    def rate(self, kind: str) -> float:
        """operations/s for a kind of operation; "tensor" is the fastest matrix rate at half precision.

        A product in fp32 may be computed from fp16 or bf16 parts, so only that rate bounds it physically.
        """
        if kind == "tensor":
            return max(self.rates[name] for name in ("fp16", "bf16", "tf32") if name in self.rates)
        if kind not in self.rates:
            raise KforgeError(f"no rate for operations of kind {kind!r}", "kinds: tensor, " + ", ".join(self.rates))
        return self.rates[kind]

    def as_dict(self) -> dict[str, Any]:
        """As JSON, with the schema's version."""
        return {"schema": SCHEMA, **asdict(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Ceilings:
        """The inverse of as_dict."""
        return Ceilings(**{key: value for key, value in data.items() if key != "schema"})


_SPECIAL_A_CLOCK = 16  # results a multiprocessor has each clock (CUDA C++ Programming Guide, arithmetic instructions)
_SHARED_A_CLOCK = 128  # bytes likewise


def _sheet(gpu: str, bandwidth: float, l2: int, processors: int, ghz: float, **rates: float) -> Ceilings:
    terabytes = dict.fromkeys(_SHARES, bandwidth * 1e12)
    a_second = processors * ghz * 1e9
    operations = {kind: rate * 1e12 for kind, rate in rates.items()} | {"special": _SPECIAL_A_CLOCK * a_second}
    return Ceilings(
        gpu, terabytes, operations, l2 << 20, 2e-6, DATA_SHEET,
        shared=_SHARED_A_CLOCK * a_second, processors=processors,
    )  # fmt: skip


# NVIDIA's data sheets, dense rates of the SXM form where there are several: TB/s, MiB of L2, multiprocessors, boost
# clock in GHz, Tera-operations/s. A slower form of the same chip (PCIe) gets these too: as bounds they stay true. The
# L2's rate is not published.
DATA_SHEETS: dict[str, Ceilings] = {
    "A100": _sheet("NVIDIA A100", 2.039, 40, 108, 1.41, fp64=19.5, fp32=19.5, tf32=156, bf16=312, fp16=312),
    "H100": _sheet(
        "NVIDIA H100", 3.35, 50, 132, 1.98, fp64=67, fp32=67, tf32=494.7, bf16=989.4, fp16=989.4, fp8=1978.9
    ),
    "H200": _sheet("NVIDIA H200", 4.8, 60, 132, 1.98, fp64=67, fp32=67, tf32=494.7, bf16=989.4, fp16=989.4, fp8=1978.9),
    "L40S": _sheet(
        "NVIDIA L40S", 0.864, 96, 142, 2.52, fp64=1.43, fp32=91.6, tf32=183, bf16=362.05, fp16=362.05, fp8=733
    ),
    "RTX 4090": _sheet(
        "RTX 4090", 1.008, 72, 128, 2.52, fp64=1.29, fp32=82.6, tf32=82.6, bf16=165.2, fp16=330.3, fp8=660.6
    ),
    "B200": _sheet("NVIDIA B200", 8.0, 126, 148, 1.965, fp64=40, fp32=80, tf32=1100, bf16=2250, fp16=2250, fp8=4500),
}


_ARCH_OF = {
    "A100": "sm_80",
    "H100": "sm_90a",
    "H200": "sm_90a",
    "L40S": "sm_89",
    "RTX 4090": "sm_89",
    "B200": "sm_100a",
}
_CHIP_OF = {"sm_80": "A100", "sm_86": "A100", "sm_89": "L40S", "sm_90": "H200", "sm_100": "B200"}


def sheet_for_arch(arch: str) -> Ceilings:
    """The data sheet that stands for an architecture ("sm_90a") where no GPU is named. MissingError: there is none."""
    name = _CHIP_OF.get(arch.rstrip("af"))
    if name is None:
        raise MissingError(f"no data sheet stands for {arch}", "name a GPU of: " + ", ".join(DATA_SHEETS))
    return DATA_SHEETS[name]


def data_sheet(gpu: str) -> Ceilings:
    """The data-sheet ceilings of the GPU whose name contains one of the table's. MissingError: not in the table."""
    return DATA_SHEETS[_in_the_table(gpu)]


def arch_of(gpu: str) -> str:
    """The architecture ("sm_90a") of a GPU that has a data sheet, by its name. MissingError: not in the table."""
    return _ARCH_OF[_in_the_table(gpu)]


def _in_the_table(gpu: str) -> str:
    for name in DATA_SHEETS:
        if re.search(rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])", gpu):
            return name
    raise MissingError(f"no data sheet for {gpu!r}", "known: " + ", ".join(DATA_SHEETS))


def for_device(device: str = "cuda:0", cache: Path | None = None) -> Ceilings:
    """The calibrated ceilings of a GPU that is present: from the cache, else measured now (a few seconds) and cached.

    cache: the cache folder (default: the configured one). MissingError without a GPU. A measurement that stays under
    half of the data sheet's bandwidth (another process uses the GPU) is returned and not cached.
    """
    import torch

    from kforge.profiling.calibrate import calibrate

    if not torch.cuda.is_available():
        raise MissingError("ceilings can only be measured on a GPU", "data-sheet values serve for a GPU that is absent")
    name, driver = torch.cuda.get_device_name(device), driver_release()
    path = _cache_file(device, cache)
    cached = _read(path)
    if cached is not None:
        return cached
    measured = calibrate(device, driver)
    try:
        trusted = measured.read >= 0.5 * data_sheet(name).read
    except MissingError:
        trusted = True  # nothing to compare with
    if trusted:
        _write(path, measured)
    return measured


def is_cached(device: str = "cuda:0", cache: Path | None = None) -> bool:
    """Whether `for_device` will answer at once."""
    return _read(_cache_file(device, cache)) is not None


def _cache_file(device: str, cache: Path | None) -> Path:
    import torch

    from kforge import config

    name = f"{torch.cuda.get_device_name(device)}-{driver_release()}"
    return (cache or config.load().cache) / "ceilings" / (re.sub(r"[^A-Za-z0-9.]+", "-", name) + ".json")


def _read(path: Path) -> Ceilings | None:
    try:
        data = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return Ceilings.from_dict(data) if data.get("schema") == SCHEMA else None


def _write(path: Path, ceilings: Ceilings) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(fd, "w") as file:
        json.dump(ceilings.as_dict(), file, indent=1)
    os.replace(temporary, path)


def driver_release() -> str:
    """The driver's release, or the CUDA version it runs where the release cannot be read."""
    try:
        match = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        match = None
    if match:
        return match[0]
    from kforge.kernel.build.toolchain import driver_version

    version = driver_version()
    return f"cuda-{version[0]}.{version[1]}" if version else "unknown"
