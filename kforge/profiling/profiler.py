"""From a task and a candidate to Evidence: asks every source that this machine has, and names those it lacks.

The candidate's code runs in a worker's child only; what profiles it with counters replays its launches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import ChildFailed, MisalignedError, MissingError
from kforge.kernel.ctypes_table import element_of
from kforge.kernel.occupancy import occupancy
from kforge.profiling.builds import (
    MOST_SHARED,
    attributed,
    counted,
    cubin_in,
    described,
    disassembled,
    from_launch,
    from_report,
    geometry,
    library_products,
    longest,
    made_by_others,
    products,
    with_counters,
)
from kforge.profiling.ceilings import Ceilings
from kforge.profiling.evidence import Evidence, KernelEvidence, KernelSass, Missing, Power, plain_name
from kforge.profiling.sources import Unavailable
from kforge.profiling.stage import confirmed, stage_one
from kforge.task.limits import EMULATOR_BYTES
from kforge.worker import answers, walled

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.profiling.sources.ncu import Report
    from kforge.task import Call, Cost, Task
    from kforge.worker import Child, Zygote

TRACE_S = 20.0  # for the emulator's trace of one call
CALL_S, BUILD_S = 20.0, 120.0  # for one call or import of the candidate, for the compiler
LONG_S = 60.0  # for what takes many calls of it on a GPU
TRACED_BYTES = 16 << 20  # of inputs that are traced in place of counters


@dataclass
class Profiler:
    """One candidate on its way through the sources.

    device: "cpu" (emulator) or "cuda:N". arch: built for. cost: counted from the graph, None where capture failed.
    folder: the candidate's. share: makes the emulator ready for a folder and names what its process must read besides.
    counters: whether ncu is asked.
    timed: whether the call is timed. baselines_us: of eager and compile-default where they were timed.
    overrides: constants by kernel, of a configuration that is not the declared one.
    tell: hears which source is asked. quiet: set when no other thread runs the user's code (None: none does), of
    which `collect` may need another call.
    """

    task: Task
    candidate: Candidate
    device: str
    arch: str
    target: str
    ceilings: Ceilings
    cost: Cost | None
    zygote: Zygote
    folder: Path
    share: Callable[[Path], Sequence[Path]] = lambda _: ()
    variant: int = 0
    counters: bool = True
    energy: bool = False
    timed: bool = True
    baselines_us: Mapping[str, float] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda _: None
    quiet: threading.Event | None = None

    def __post_init__(self) -> None:
        self.missing: list[Missing] = []
        self.notes: list[str] = []  # for a reader of stage one
        self.candidate_us: float | None = None
        self.seconds: dict[str, float] = {}
        self.kernels: list[KernelEvidence] = []
        self.cubins: dict[str, Path] = {}
        self.timeline: Any = None
        self.power: Power | None = None
        # The user's code runs here, once: `collect` may run in a thread.
        self.call: Call = self.task.make_call(self.variant, 0, self.device)
        self.reference = self.task.make_reference(0, self.device)
        self.init = self.task.init_call()

    def collect(self) -> None:
        """Ask every source. ChildFailed: the candidate does not build or run; it has no profile."""
        if self.device == "cpu":
            self._on_the_emulator()
        else:
            self._on_the_gpu()

    @property
    def scratch(self) -> Path:
        """A folder for the profilers, closed to the candidate."""
        return self.folder.with_name(f"{self.folder.name}-profiler")

    # sources

    def _on_the_emulator(self) -> None:
        """What is built for the architecture, its SASS, and the trace of one call."""
        from kforge.task import call_leaves
        from kforge.task.call import tensors

        with self._child("build", "cpu") as child:
            with self._timed("build"):
                element = element_of(tensor for _, tensor in tensors(call_leaves(self.call)))
                self._take(child.resources(self.candidate, self.arch, element, timeout_s=BUILD_S))
            with ThreadPoolExecutor(1) as pool:  # the disassembler beside the trace
                sass = pool.submit(self._disassemble)
                if self._traceable(self.call, EMULATOR_BYTES // 2):  # outputs are taken to be as large as the inputs
                    self._trace(child, self.call)
                self._add_sass(sass.result())
        why = "there is no GPU" if self.target == "emulator" else "profiled on the CPU"
        self.missing += [
            Missing("ncu", why, "profile on a machine with a GPU"),
            Missing("timeline", why, "profile on a machine with a GPU"),
        ]

    def _trace(self, child: Child, call: Call) -> None:
        """Sectors, shared-memory passes and bytes by line of one call on the emulator."""
        from kforge.profiling.sources.traced import trace

        with self._timed("trace"), self._optional():
            self._load(child)
            launches = trace(child, call, TRACE_S)
            if self.device == "cpu":
                self.kernels = [replace(k, launches=0) for k in self.kernels]
            for launch in launches:
                fields: dict[str, Any] = {"traced_bytes": launch.nbytes, "access": launch.access}
                if self.device == "cpu":
                    fields |= {"grid": launch.grid, "block": launch.block, "launches": launch.count}
                    fields["dynamic"] = launch.shared
                self._update(launch.kernel, **fields)

    def _trace_instead(self) -> None:
        """Where counters are denied on a GPU: the same call on the emulator, if it is small enough for that."""
        if self.quiet is not None:
            self.quiet.wait()
        call = self.task.make_call(self.variant, 0, "cpu")
        if self._traceable(call, TRACED_BYTES):
            with self._child("build", "cpu") as child:
                self._trace(child, call)

    def _traceable(self, call: Call, most: int) -> bool:
        """Whether the inputs are of at most so many bytes; told as missing where they are not."""
        from kforge.task import call_leaves
        from kforge.task.call import tensors

        size = sum(t.nbytes for _, t in tensors(call_leaves(call)))
        if size > most:
            words = f"inputs of {size >> 20} MB are too large for the emulator's trace"
            self.missing.append(Missing("trace", words, "profile smaller inputs (--variant)"))
        return size <= most

    def _on_the_gpu(self) -> None:
        from kforge.profiling.energy import power
        from kforge.profiling.sources.timeline import times
        from kforge.worker import gpu_lock

        with self._timed("build"), self._child("build") as child:
            self._load(child)
            child.warm(self.call, timeout_s=BUILD_S)
        wall: float | None = None
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(2))
            # the profiler takes seconds to start and slows launches: in a process of its own, beside what follows
            seer = stack.enter_context(self._child("run")) if self.timed else None
            primed = pool.submit(seer.prime_profiler) if seer is not None else None
            with self._child("run") as child:
                self._load(child, timer=self.timed)
                with self._timed("launches"):
                    rows = child.write_launches(self.call, timeout_s=CALL_S)
                    self._take(rows)
                if self.timed:
                    with self._timed("times"), gpu_lock(self.device):
                        self.candidate_us, wall = times(child, self.call)
                if self.timed or self.energy:
                    with self._timed("energy" if self.energy else "clocks"), self._optional():
                        self.power = power(child, self.call, self.device, energy=self.energy)
            sass = pool.submit(self._disassemble) if rows else None
            self._ask_ncu(bool(rows))
            if seer is not None and primed is not None and wall is not None:
                with self._timed("timeline"), self._optional():
                    self._see(seer, primed, wall)
            self._ask_nsys()
            if sass is not None:
                self._add_sass(sass.result())
        self._add_times()

    def _see(self, seer: Child, primed: Future[float], wall_us: float) -> None:
        """The timeline, by the child whose profiler was started."""
        from kforge.profiling.sources.timeline import timeline
        from kforge.worker import gpu_lock

        try:
            self.seconds["profiler start, beside the rest"] = primed.result()
        except ChildFailed as failure:
            raise Unavailable("timeline", f"the profiler of torch does not start: {failure}") from failure
        self._load(seer)
        with gpu_lock(self.device):
            self.timeline = timeline(seer, self.call, wall_us)

    def _ask_ncu(self, launched: bool) -> None:
        """Counters of the written launches; where there are none, the emulator's trace of small inputs."""
        if not launched:
            words = "the candidate launches nothing through kforge.kernel.Kernel"
            self.missing.append(Missing("ncu", words, "kernels of Triton or extensions show in the timeline only"))
        elif not self.counters:
            self.missing.append(Missing("ncu", "not asked for", "leave out --no-counters"))
        else:
            with self._timed("ncu"), self._optional():
                self._count()
            if not any(kernel.counters for kernel in self.kernels):
                self._trace_instead()

    def _ask_nsys(self) -> None:
        """Between which kernels the device waits, where it does and nsys is here."""
        from kforge.profiling.sources.timeline import WAITING, with_nsys
        from kforge.worker import nsys

        if self.timeline is None or self.timeline.idle < WAITING or nsys.find() is None:
            return
        with self._timed("nsys"), self._optional(), self._child("build") as child:
            self._load(child)
            self.timeline = with_nsys(self.timeline, child, self.call)

    def _count(self) -> None:
        from kforge.profiling.sources import ncu
        from kforge.worker import gpu_lock

        chip = {"sm_80": "ga100", "sm_86": "ga102", "sm_89": "ad102", "sm_90": "gh100", "sm_100": "gb100"}
        with gpu_lock(self.device):
            report = ncu.run(
                self.folder / "tmp" / "launches",
                self.scratch,
                self.device,
                chip.get(self.arch.rstrip("af"), ""),
                call_s=(self.candidate_us or 0.0) * 1e-6,
            )
        self.add_counters(report)

    def add_counters(self, report: Report) -> None:
        """What ncu saw of the launches, for the kernels that they are of."""
        self.kernels = with_counters(self.kernels, report.launches)
        if report.reader == "csv":
            words = "the report was read as CSV: no figures by source line"
            self.missing.append(Missing("ncu_report", words, "pip install ncu-report"))
        self.notes += report.notes
        if report.walls != walled.FULL:
            self.notes.append(f"ncu stood behind the walls '{report.walls}' (no code of the candidate ran there)")

    def _disassemble(self) -> dict[str, KernelSass]:
        """SASS by kernel name."""
        begin = time.perf_counter()
        try:
            return disassembled(self.kernels, self.cubins, tuple(self.candidate.files))
        except Unavailable as error:
            self.missing.append(Missing(error.source, error.reason, error.remedy))
            return {}
        finally:
            self.seconds["sass"] = time.perf_counter() - begin

    # putting together

    def _take(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Kernels from the build report, or the longest of the written launches of each. ChildFailed("protocol"): rows
        of another form, or with figures that no kernel has."""
        with described():
            for row in longest(rows):
                self._take_one(row)

    def _take_one(self, row: Mapping[str, Any]) -> None:
        launched = "kernel" in row
        name = str(row["kernel"] if launched else row["name"])
        self.cubins[name] = cubin = cubin_in(self.folder, row)
        self.kernels.append(from_launch(row) if launched else from_report(row, cubin))
        if launched:
            grid, block = geometry(row)
            self._update(name, grid=grid, block=block, dynamic=answers.count(row["shared"], MOST_SHARED))

    def _update(self, name: str, *, dynamic: int = 0, **fields: Any) -> None:
        """Fields of the kernel that a launch was of; its occupancy follows from block and shared memory."""
        for i, kernel in enumerate(self.kernels):
            if plain_name(name) != plain_name(kernel.name):
                continue
            shared = (kernel.shared or 0) + dynamic
            kernel = replace(kernel, **fields, shared=shared)
            found = occupancy(self.arch, kernel.threads or 1, kernel.registers or 0, shared)
            if found is not None:
                kernel = replace(kernel, occupancy=found.share, occupancy_limit=found.limit, blocks_per_sm=found.blocks)
            self.kernels[i] = kernel
            return

    def _add_sass(self, found: Mapping[str, KernelSass]) -> None:
        self.kernels = [attributed(replace(k, sass=found[k.name])) if k.name in found else k for k in self.kernels]

    def _add_times(self) -> None:
        """Device time from the timeline where ncu gave none."""
        if self.timeline is None:
            return
        for i, kernel in enumerate(self.kernels):
            for name, us, count in self.timeline.kernels:
                if kernel.us is None and plain_name(name) == plain_name(kernel.name):
                    self.kernels[i] = replace(kernel, us=us / max(1, count))

    def evidence(self) -> Evidence:
        """What was collected, with stage one."""
        cost, line = self.cost, self.timeline
        stage = None
        if cost is not None:
            why = "" if self.baselines_us else "untimed: there is no GPU" if self.device == "cpu" else "not timed"
            stage = stage_one(
                cost,
                self.ceilings,
                baselines_us=self.baselines_us,
                candidate_us=self.candidate_us,
                why_untimed=why,
            )
            longest = max(self.kernels, key=lambda k: (k.us or 0.0) * k.launches, default=None)
            stage = confirmed(stage, longest.counters if longest else {})
            stage = replace(stage, notes=(*stage.notes, *self.notes))
        return Evidence(
            task=self.task.name,
            candidate=self.candidate.digest,
            target=self.target,
            arch=self.arch,
            processors=self.ceilings.processors,
            stage=stage,
            kernels=tuple(self.kernels),
            counted=counted(cost),
            rates={"read": self.ceilings.read, "write": self.ceilings.write, "l2": self.ceilings.l2,
                   "shared": self.ceilings.shared, **self.ceilings.rates},
            l2_bytes=self.ceilings.l2_bytes,
            products=products(cost),
            library=library_products(self.candidate),
            timeline=line,
            power=self.power,
            missing=tuple(self.missing),
            seconds={name: round(s, 3) for name, s in self.seconds.items()},
        )  # fmt: skip

    # the child

    @contextmanager
    def _child(self, phase: str, device: str = "") -> Iterator[Child]:
        from kforge.worker import Limits

        device = device or self.device
        compiles = phase == "build" and made_by_others(self.candidate)  # when it is imported, or at its first call
        limits = Limits(call_s=BUILD_S if compiles else CALL_S if device == "cpu" or phase == "build" else LONG_S)
        if device != "cpu":
            with self.zygote.fork(self.folder, device, phase, limits) as child:
                yield child
            return
        folder = self.folder if self.device == "cpu" else self.folder.with_name(f"{self.folder.name}-emulated")
        mode = {"KFORGE_EMULATOR": "fast"}
        with self.zygote.fork(folder, "cpu", phase, limits, mode, self.share(folder)) as child:
            yield child

    def _load(self, child: Child, timer: bool = False) -> None:
        from kforge.task import read_state

        module = self.reference if child.device == self.device else self.task.make_reference(0, child.device)
        state = read_state(module)
        reply = child.load(
            self.candidate,
            self.init,
            state.tensors,
            module.training,
            self.overrides,
            nonpersistent=[name for name in state.tensors if name not in state.persistent],
            precision=self.task.precision,
            timer=timer,
            gradients=self.task.gradients,
        )
        if reply.problem:
            raise ChildFailed("raised", f"state_dict differs from the reference's: {reply.problem}")

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        self.tell(name)
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - begin

    @contextmanager
    def _optional(self) -> Iterator[None]:
        """A source that has nothing to say here is named; the profile goes on without it."""
        try:
            yield
        except Unavailable as error:
            self.missing.append(Missing(error.source, error.reason, error.remedy))
        except ChildFailed as failure:
            if failure.error.get("kind") not in ("emulator", MisalignedError.kind, "too_large", MissingError.kind):
                raise
            self.missing.append(Missing("trace", failure.error["message"], failure.error.get("hint", "")))
