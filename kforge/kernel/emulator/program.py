"""A built source in this process: launches its kernels on host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kforge.errors import EmulatorError, LaunchError, MisalignedError
from kforge.kernel.emulator import recording
from kforge.kernel.emulator.access import Access
from kforge.kernel.emulator.build import Library, build_library
from kforge.kernel.emulator.findings import Collector, Finding, Region, SharedVariable
from kforge.kernel.emulator.job import Launch
from kforge.kernel.emulator.mode import (
    Kind,
    Mode,
    current_mode,
    current_order,
    strict_exits,
    time_limit,
    worker_threads,
)
from kforge.kernel.emulator.races import Recorder
from kforge.kernel.emulator.source import insert_constants

Dim3 = tuple[int, int, int]
MAX_SHARED = 227 << 10  # bytes a block may have on sm_90
MAX_FIBERS = 1 << 16  # threads that are alive at once in a cooperative launch
_SPREAD_FROM = 8192  # CUDA threads from which starting OS threads (50 us) pays
_GPU_ONLY, _TIMED_OUT, _MISALIGNED = 2, 3, 4


class _EntryPoint(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_uint)),
        ("parameters", ctypes.c_uint),
    ]


class _SharedVariable(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("offset", ctypes.c_size_t), ("bytes", ctypes.c_size_t)]


class _LaunchRequest(ctypes.Structure):
    _fields_ = [
        ("call", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("static_bytes", ctypes.c_uint64),
        ("dynamic_bytes", ctypes.c_uint64),
        ("variables", ctypes.c_void_p),
        ("variable_count", ctypes.c_uint64),
        ("order", ctypes.c_uint),
        ("workers", ctypes.c_uint),
        ("cooperative", ctypes.c_uint),
        ("strict", ctypes.c_uint),
        ("seconds", ctypes.c_double),
        ("traced", ctypes.c_void_p),
        ("traced_count", ctypes.c_uint64),
        ("traced_descriptor", ctypes.c_int),
    ]


@dataclass(frozen=True)
class EntryPoint:
    """A kernel of the library: address, and the size in bytes of each parameter."""

    name: str
    address: int
    sizes: tuple[int, ...]


_runtimes: dict[str, ctypes.CDLL] = {}


def _runtime(path: Path) -> ctypes.CDLL:
    # By content, not by path: kernels bind to the first copy in the process, so there must be no second one.
    key = path.parent.name
    if key not in _runtimes:
        _runtimes[key] = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return _runtimes[key]


@lru_cache(maxsize=1)
def _collector(runtime: Path) -> Collector:
    return Collector(_runtime(runtime))  # one for all programs: the runtime reports to one place


class Program:
    """The kernels of one source.

    entry_points: by name expression. shared_variables: of all kernels of the source. findings, profile, used_atomics:
    of the last launch.
    """

    def __init__(self, library: Library, mode: Mode, origin: recording.Origin) -> None:
        self.library, self.origin = library, origin
        self.mode = mode
        self.findings: tuple[Finding, ...] = ()
        runtime = _runtime(library.runtime)
        if library.tracer:
            _runtime(library.tracer)
        self._collector = _collector(library.runtime) if mode.kind is Kind.CHECKED else None
        self._launch = runtime.kforge_emulator_launch
        self._atomic_operations = runtime.kforge_emulator_atomic_operations
        self._atomic_operations.restype = ctypes.c_ulonglong
        self.used_atomics = False
        self._code = ctypes.CDLL(str(library.path))
        self.profile: tuple[Access, ...] = ()
        self._recorder = Recorder(runtime, library.path, self._code) if mode.kind is Kind.TRACED else None
        self.entry_points = self._read_entry_points()
        self._read_shared()

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        args: Sequence[ctypes._SimpleCData | ctypes.Structure | ctypes.Array],  # type: ignore[type-arg]
        cluster: Sequence[int] = (1, 1, 1),
        order: int | None = None,
        cooperative: bool = False,
        buffers: Sequence[Region] = (),
        raise_findings: bool = True,
    ) -> None:
        """Runs all blocks and returns when they are done.

        grid, block, cluster: (x, y, z). shared: bytes of dynamic shared memory. args: one ctypes value per parameter
        (c_void_p for pointers to host memory). order: see mode.Order, default the mode's. buffers: names and
        extents of the memory behind pointers, for the findings of modes checked and traced. LaunchError: what a GPU
        refuses to launch. EmulatorError: what goes wrong inside the kernel, with the user's lines; in mode
        checked its first finding, unless raise_findings is off (then see `findings`).
        """
        entry = self.entry_points.get(kernel)
        if entry is None:
            raise LaunchError(f"no kernel '{kernel}' was built; there are {', '.join(self.entry_points)}")
        if tuple(cluster) == (1, 1, 1):
            name = kernel.split("<")[0].split("::")[-1].strip()
            cluster = self.library.translation.clusters.get(name, (1, 1, 1))
        own = self.shared_variables if len(self.entry_points) == 1 else ()  # of which kernel is not said
        _check_dimensions(kernel, grid, block, shared, sum(v.nbytes for v in own), cluster, cooperative)
        _check_arguments(entry, args)
        if 0 in grid:
            return
        regions = buffers or [
            Region(f"parameter {i}", a.value, 0)
            for i, a in enumerate(args)
            if isinstance(a, ctypes.c_void_p) and a.value
        ]
        pointers = (ctypes.c_void_p * (len(args) + 1))(*[ctypes.addressof(a) for a in args])
        blocks, threads = _product(grid), _product(block)
        spread = not self.library.translation.sequential and blocks * threads >= _SPREAD_FROM
        request = _LaunchRequest(
            call=entry.address,
            arguments=ctypes.addressof(pointers),
            grid=tuple(grid),
            block=tuple(block),
            cluster=tuple(cluster),
            static_bytes=self._static_bytes,
            dynamic_bytes=shared,
            variables=ctypes.cast(self._variables, ctypes.c_void_p),
            variable_count=len(self.shared_variables),
            order=current_order(self.mode) if order is None else order,
            workers=worker_threads() if spread and not self._recorder else 1,
            cooperative=cooperative,
            strict=strict_exits(),
            seconds=time_limit(),
        )
        if self._recorder:
            table = self._recorder.table(regions)
            request.traced = ctypes.addressof(table)
            request.traced_count = len(table)
            request.traced_descriptor = self._recorder.descriptor
            self._recorder.begin()
        message = ctypes.create_string_buffer(4096)
        atomics = self._atomic_operations()
        kept = recording.current
        if kept is not None:
            launch = Launch("", "", kernel, _dim3(grid), _dim3(block), (), shared, _dim3(cluster), cooperative)
            kept.add(self.origin, launch, args, buffers)
            if kept.only:
                return
        with kept.timed() if kept is not None else nullcontext():
            failure = self._launch(ctypes.byref(request), message, ctypes.c_size_t(len(message)))
        self.used_atomics = self._atomic_operations() > atomics
        if self._collector:
            self.findings = self._collector.take(kernel, request.order, self.shared_variables, regions)
        if self._recorder:
            self.findings, self.profile = self._recorder.take(kernel, request.order)
        errors = [f for f in self.findings if f.kind != "same_value"]
        if errors and raise_findings:
            raise EmulatorError(str(errors[0]), f"found by KFORGE_EMULATOR={self.mode.kind.value}")
        if failure:
            _raise(kernel, failure, message.value.decode(errors="replace"))

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes of global memory read and written by the last launch in mode traced."""
        return (self._recorder.read_bytes, self._recorder.written_bytes) if self._recorder else (0, 0)

    def _read_entry_points(self) -> dict[str, EntryPoint]:
        function = self._code.kforge_emulator_entries
        function.restype = ctypes.POINTER(_EntryPoint)
        count = ctypes.c_uint()
        table = function(ctypes.byref(count))
        rows = [table[i] for i in range(count.value)]
        return {r.name.decode(): EntryPoint(r.name.decode(), r.call, tuple(r.sizes[: r.parameters])) for r in rows}

    def _read_shared(self) -> None:
        function = self._code.kforge_emulator_shared
        function.restype = ctypes.POINTER(_SharedVariable)
        count, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._variables = function(ctypes.byref(count), ctypes.byref(total))
        rows = [self._variables[i] for i in range(count.value)]
        self.shared_variables = tuple(SharedVariable(r.name.decode(), r.offset, r.bytes) for r in rows)
        self._static_bytes = total.value


def load(
    source: str,
    filename: str,
    kernels: Sequence[str],
    defines: Mapping[str, str | int] | None = None,
    types: Mapping[str, str] | None = None,
    includes: Sequence[Path] = (),
    mode: Mode | str | None = None,
) -> Program:
    """Builds `source` (cached by content) and loads it.

    filename: what errors call the source. kernels: names or name expressions ("softmax<float, 4>"). defines, types:
    constants and type names put after the last top-level include. mode: default KFORGE_EMULATOR. BuildError with g++'s
    log; MissingError without g++ or CUDA headers; EmulatorError for what only a GPU runs.
    """
    if isinstance(mode, str):
        mode = Mode.parse(mode)
    mode = mode or current_mode()
    library = build_library(source, filename, kernels, defines or {}, types or {}, includes, mode.kind)
    lines = [f"#define {n} {v}" for n, v in (defines or {}).items()]
    lines += [f"using {n} = {v};" for n, v in (types or {}).items()]
    return Program(library, mode, (insert_constants(source, filename, lines), filename, tuple(includes)))


def _dim3(dims: Sequence[int]) -> Dim3:
    return dims[0], dims[1], dims[2]


def _product(dims: Sequence[int]) -> int:
    return dims[0] * dims[1] * dims[2]


def _check_dimensions(
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
    static: int,
    cluster: Sequence[int],
    cooperative: bool,
) -> None:
    def refuse(what: str) -> None:
        raise LaunchError(f"{kernel}: {what}")

    if any(len(d) != 3 for d in (grid, block, cluster)):
        refuse("grid, block and cluster have three dimensions")
    if min(grid) < 0 or grid[0] > 2**31 - 1 or max(grid[1:]) > 65535:
        refuse(f"grid {tuple(grid)} is outside (2147483647, 65535, 65535)")
    if min(block) < 1 or _product(block) > 1024 or block[2] > 64:
        refuse(f"block {tuple(block)} has {_product(block)} threads; 1 to 1024 are allowed, at most 64 along z")
    if shared < 0 or shared + static > MAX_SHARED:
        beside = f" beside {static} of variables" if static else ""
        refuse(f"{shared} bytes of dynamic shared memory{beside}; a block has at most {MAX_SHARED}")
    if min(cluster) < 1 or _product(cluster) > 16 or any(g % c for g, c in zip(grid, cluster, strict=True)):
        refuse(f"cluster {tuple(cluster)} must divide grid {tuple(grid)} and have at most 16 blocks")
    if cooperative and _product(grid) * _product(block) > MAX_FIBERS:
        refuse(
            f"a cooperative launch of {_product(grid) * _product(block)} threads; the emulator keeps {MAX_FIBERS} alive"
        )


def _check_arguments(entry: EntryPoint, args: Sequence[object]) -> None:
    if len(args) != len(entry.sizes):
        raise LaunchError(f"{entry.name} takes {len(entry.sizes)} arguments, {len(args)} were given")
    for i, (size, value) in enumerate(zip(entry.sizes, args, strict=True)):
        given = ctypes.sizeof(value)  # type: ignore[arg-type]
        if given != size:
            raise LaunchError(f"{entry.name}: parameter {i} has {size} bytes, the argument has {given}")


def _raise(kernel: str, failure: int, text: str) -> None:
    if failure == _GPU_ONLY:
        instruction, _, place = text.partition("\n")
        raise EmulatorError(
            f"{kernel}: {instruction} at {place} runs on a GPU only", "judge this kernel on a GPU", gpu_only=instruction
        )
    if failure == _MISALIGNED:
        hint = "a GPU faults there: the vector form must ask for the alignment of address and strides"
        raise MisalignedError(f"{kernel}: {text}", hint)
    hint = "raise KFORGE_EMULATOR_SECONDS, or look for a loop that waits" if failure == _TIMED_OUT else ""
    raise EmulatorError(f"{kernel}: {text}", hint)
