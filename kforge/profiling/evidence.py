"""What is known about a candidate when its tools run: plain data of every source, which round-trips through JSON.

A field that its source could not fill is None or empty; `missing` says which source, why, and what allows it.
Times in microseconds, energy in millijoules, sizes in bytes unless a name says otherwise.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from kforge.kernel.emulator.access import Access

SCHEMA = 1
T = TypeVar("T")


@dataclass(frozen=True)
class SassLine:
    """Instructions of one source line by class; weight counts those in loops more; width: the narrowest access.

    code: (address, text) of each instruction, in the order of the addresses.
    """

    file: str
    line: int
    mix: Mapping[str, int]
    weight: int = 0
    width: int = 0
    code: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class KernelSass:
    """The instructions of one kernel. mix: count by class (sources/opcodes.py); weighted: loops count tenfold a level.

    load_widths, store_widths: weighted count of global accesses by bytes a thread. matrix: opcodes of the matrix units.
    loads_in_flight: bytes of global loads that a thread has under way before it waits, first at load_line.
    """

    instructions: int
    mix: Mapping[str, int]
    weighted: Mapping[str, int]
    load_widths: Mapping[str, int] = field(default_factory=dict)
    store_widths: Mapping[str, int] = field(default_factory=dict)
    matrix: tuple[str, ...] = ()
    loop: bool = False
    loads_in_flight: int = 0
    load_line: tuple[str, int] | None = None
    lines: tuple[SassLine, ...] = ()

    def share(self, *kinds: str) -> float:
        """Share of these classes in the weighted instructions."""
        total = sum(self.weighted.values())
        return sum(self.weighted.get(kind, 0) for kind in kinds) / total if total else 0.0


@dataclass(frozen=True)
class Sampled:
    """What ncu saw at one instruction: samples, those by stall reason, how often it ran (by warps).

    threads: executions by threads. sectors: of global memory that it moved, passes: over shared memory, each beside
    what its bytes need.
    """

    file: str
    line: int
    address: int
    sass: str
    samples: int
    stalls: Mapping[str, int] = field(default_factory=dict)
    executed: int = 0
    threads: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    passes: int = 0
    passes_ideal: int = 0


@dataclass(frozen=True)
class KernelEvidence:
    """One kernel of the candidate, in the configuration and launch that were profiled.

    shared: static and dynamic bytes. counters: by the short names of sources/ncu_metrics.py. us: device time of one
    launch. traced_bytes: (read, written) by its threads. sectors_bytes: what that takes at the L2 in whole sectors.
    """

    name: str
    symbol: str = ""
    file: str = ""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    stack: int | None = None
    shared: int | None = None
    occupancy: float | None = None
    occupancy_limit: str = ""
    blocks_per_sm: int | None = None
    launches: int = 1
    us: float | None = None
    sass: KernelSass | None = None
    access: tuple[Access, ...] = ()
    traced_bytes: tuple[int, int] | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    sampled: tuple[Sampled, ...] = ()

    @property
    def threads(self) -> int | None:
        """Threads of a block."""
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]

    def counter(self, *names: str) -> float | None:
        """The first counter of these that was measured."""
        return next((self.counters[name] for name in names if name in self.counters), None)

    def stall(self, reason: str) -> float | None:
        """Share (0 to 1) of the warps' waiting that one reason has; None without counters."""
        total = self.counters.get("stall_total")
        value = self.counters.get(f"stall_{reason}")
        return value / total if total and value is not None else None


class Kind(StrEnum):
    """What limits a task by analysis: bytes, arithmetic, the launch itself, or bytes and arithmetic alike."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"
    MIXED = "mixed"


@dataclass(frozen=True)
class StageOne:
    """The class of the task and its room. memory_us, compute_us, launch_us: the terms that decided.

    intensity: operations a byte. headroom: the best baseline over the floor, None without a GPU (headroom_reason).
    measured: the class by ncu, "" without; source: of the ceilings, calibrated or data sheet.
    """

    kind: Kind
    floor_us: float
    memory_us: float
    compute_us: float
    launch_us: float
    intensity: float
    ceilings: str
    source: str
    baselines_us: Mapping[str, float] = field(default_factory=dict)
    candidate_us: float | None = None
    headroom: float | None = None
    headroom_reason: str = ""
    no_room: bool = False
    measured: str = ""
    notes: tuple[str, ...] = ()

    @property
    def fastest(self) -> str:
        """The baseline that headroom is over, "" where none was timed."""
        return min(self.baselines_us, key=lambda name: self.baselines_us[name], default="")

    @property
    def over_launch(self) -> float | None:
        """The best baseline over one launch, where the work is shorter than that: what is left to win there."""
        if self.kind is not Kind.LATENCY or not self.baselines_us or not self.launch_us:
            return None
        return self.baselines_us[self.fastest] / self.launch_us

    @property
    def achieved(self) -> float | None:
        """Share of the floor that the candidate reaches."""
        return self.floor_us / self.candidate_us if self.candidate_us else None


@dataclass(frozen=True)
class Timeline:
    """Where one call's time goes. wall_us: a call back to back with others; kernels: (name, us, launches) of all.

    gaps: the longest waits of the device within a call as (after what, before what, us), seen under a profiler, which
    makes them longer. source: of kernels and gaps, in words.
    """

    wall_us: float
    kernels: tuple[tuple[str, float, int], ...]
    gaps: tuple[tuple[str, str, float], ...] = ()
    source: str = ""

    @property
    def device_us(self) -> float:
        return sum(us for _, us, _ in self.kernels)

    @property
    def launches(self) -> int:
        return sum(n for _, _, n in self.kernels)

    @property
    def idle(self) -> float:
        """Share of a call in which the device waits."""
        return max(0.0, 1 - self.device_us / self.wall_us) if self.wall_us else 0.0


@dataclass(frozen=True)
class Power:
    """NVML over a steady run: millijoules a call, watts, clocks in MHz, throttle reasons. None: not measured."""

    mj: float | None = None
    watts: float | None = None
    sm_mhz: int | None = None
    max_sm_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    baseline_mj: float | None = None


@dataclass(frozen=True)
class Missing:
    """A source that said nothing: why, and what its user or administrator can do."""

    source: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Evidence:
    """Everything known about one candidate on one target.

    counted: read_bytes, write_bytes of the least traffic, and operations by kind. rates: ceilings in bytes/s or
    operations/s by name. processors: multiprocessors of the target.
    """

    task: str
    candidate: str
    target: str
    arch: str
    processors: int
    stage: StageOne | None = None
    kernels: tuple[KernelEvidence, ...] = ()
    counted: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    l2_bytes: int = 0
    products: tuple[str, ...] = ()  # matrix products of the graph: their input's dtype, or "float32"
    library: tuple[str, ...] = ()  # products that the candidate's text leaves to a library, one for each place
    timeline: Timeline | None = None
    power: Power | None = None
    missing: tuple[Missing, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def own_products(self) -> bool:
        """Whether some product is left for the candidate's own kernels."""
        return len(self.library) < len(self.products)

    @property
    def launched(self) -> tuple[KernelEvidence, ...]:
        """The kernels that the profiled call launched; all of them where that is not known."""
        return tuple(k for k in self.kernels if k.launches) or self.kernels

    @property
    def own(self) -> frozenset[str]:
        """Bare names of the candidate's own kernels."""
        return frozenset(plain_name(k.name) for k in self.kernels)

    def share(self, kernel: KernelEvidence) -> float:
        """Share of the device time that all launches of a kernel take; equal parts where nothing was timed."""
        times = {k.name: (k.us or 0.0) * k.launches for k in self.kernels}
        total = self.timeline.device_us if self.timeline else sum(times.values())
        if not total or not times.get(kernel.name):
            return 1.0 / max(1, len(self.launched))
        return min(1.0, times[kernel.name] / total)


def plain_name(name: str) -> str:
    """The bare name of a kernel: `softmax` of "void ns::softmax<float, 4>(float const*)" and of "ns::softmax<T>"."""
    bare = name.removeprefix("void ").split("(")[0].split("<")[0]
    return bare.split("::")[-1].strip()


def as_json(value: Any) -> Any:
    """Dataclasses, enums, tuples and mappings as what json writes."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(v) for v in value]
    return value.value if isinstance(value, StrEnum) else value


def from_json(kind: type[T], data: Any) -> T:
    """The inverse of as_json for one of the classes here. Unknown keys are ignored (written by a newer version)."""
    return typing.cast(T, _read(kind, data))


def _read(kind: Any, data: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return _read(next(a for a in arguments if a is not type(None)), data)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_read(arguments[0], item) for item in data)
        return tuple(_read(a, item) for a, item in zip(arguments, data, strict=True))
    if origin is not None:  # a mapping
        return {k: _read(arguments[1], v) for k, v in data.items()} if arguments else dict(data)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: _read(hints[f.name], data[f.name]) for f in fields(kind) if f.name in data})  # type: ignore[operator]
    return kind(data) if isinstance(kind, type) and issubclass(kind, StrEnum) else data
