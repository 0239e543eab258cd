"""`evaluate(task, candidate, plan) -> Report`: the gates in order of cost; the first failure ends the evaluation.

static, build, correctness, honesty, memory, performance. Each gate is a method that returns nothing or raises `Ended`
with a status and words that a person or a model can act on; the report is made of what the gates left behind.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.environment import honesty, memory, standing, static_cuda
from kforge.environment.aftermath import after_crash, after_wrong, may_be_an_access
from kforge.environment.assembly import assemble, vendor_calls
from kforge.environment.backward import plan_for
from kforge.environment.building import Building, build_the_rest, told_by_text
from kforge.environment.correctness import Correctness
from kforge.environment.detectors import Watch
from kforge.environment.directed import compared_sizes
from kforge.environment.ending import Ended, failures
from kforge.environment.findings import Failure, Refusals, Result, StateProblem
from kforge.environment.inputs import GIVEN, Case, Plan
from kforge.environment.loading import load_candidate
from kforge.environment.performance import Extras, Measurement, memory_ratio
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.processes import collect, folder_name, keep_spare, processes_for
from kforge.environment.report import Gate, KernelBuild, Report, Status
from kforge.environment.repro import write_repro
from kforge.environment.static import StaticReport, check_static
from kforge.environment.target import reference_facts, target_arch
from kforge.errors import ChildFailed

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task import Call, Task
    from kforge.worker import Child, Zygote

Event = Callable[[str, dict[str, Any]], None]
# By when, of the time until a budget's end, the gates before the last are over with what is not required of them.
ENDS = {
    "cpu": {"build": 0.35, "correctness": 0.75, "memory": 1.0},
    "cuda": {"build": 0.2, "correctness": 0.5, "memory": 0.7},
}


def evaluate(
    task: Task,
    candidate: Candidate,
    plan: str = "standard",
    *,
    device: str = "cpu",
    arch: str | None = None,
    on_event: Event = lambda kind, data: None,
    zygote: Zygote | None = None,
    reference: Prepared | None = None,
    timing: bool = True,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    repro: Path | None = Path(".kforge/repro"),
    baseline: str | None = None,
    context: str | None = None,
    energy: bool = False,
    until: float = math.inf,
) -> Report:
    """Judge one candidate. Never raises for what a candidate does; TaskError and MissingError for the caller's side.

    device: "cpu" (emulator) or "cuda:N". arch: built for, default the device's or sm_90a. reference: of `prepare`, to
    be shared between candidates of one task. zygote: a started warm parent, likewise. timing: False stops after
    honesty. overrides: {kernel: {constant: value}} for tuning. repro: folder for repro.py of wrong candidates, None
    for none. baseline: "package:function" or "file.py:function", timed beside the reference. context:
    "script.py:model", a whole step timed with and without the candidate. energy: measure energy per call (seconds).
    until: end of a budget, on the clock of time.monotonic: beyond it answers are judged for the cases that the plan
    requires and timed against baselines that are there, and no more is done.
    on_event("gate", {...}) after each gate, ("case", {...}) after each case.
    """
    from kforge.worker import Zygote

    prepared = reference or prepare(task, device)
    own = None if zygote else Zygote().start()
    try:
        evaluation = Evaluation(prepared, candidate, plan, arch, on_event, zygote or own, overrides, repro)  # type: ignore[arg-type]
        evaluation.extras = Extras(baseline, context, energy)
        evaluation.more, evaluation.until = own is None, until
        return evaluation.run(timing)
    finally:
        if own is not None:
            own.close()


class Evaluation:
    """One candidate on its way through the gates."""

    def __init__(
        self,
        prepared: Prepared,
        candidate: Candidate,
        plan: str,
        arch: str | None,
        on_event: Event,
        zygote: Zygote,
        overrides: Mapping[str, Mapping[str, Any]] | None,
        repro: Path | None,
    ) -> None:
        self.prepared, self.candidate, self.on_event, self.zygote = prepared, candidate, on_event, zygote
        asked = plan_for(plan, prepared.task, compared_sizes(candidate))
        self.plan = _usable(standing.widened(asked, prepared.task.constraints), prepared)
        self.asked = self.plan.cases  # before those are taken out for which no time is left to build
        self.unbuilt: tuple[Case, ...] = ()
        self.refusals = Refusals()
        self.overrides, self.repro_root = overrides, repro
        self.arch = arch or target_arch(prepared.device)
        self.watch = Watch()
        self.gates: list[Gate] = []
        self.result = Result()
        self.static: StaticReport | None = None
        self.builds: tuple[KernelBuild, ...] = ()
        self.notes: list[str] = []  # what was not tested
        self.warnings: list[str] = []
        self.environment: dict[str, str] = {}
        self.extras = Extras()
        self.performance: dict[str, Any] = {}  # fields of the report that the performance gate fills
        self.repro: str | None = None
        self.died = False  # of an access that mode checked names
        self.more = False  # whether the caller's warm parent will see further candidates
        self.begun, self.until = time.monotonic(), math.inf
        self.timing = False  # whether this one comes to the performance gate
        self._shared = ExitStack()  # of the GPU's lock, until the performance gate wants the GPU alone
        self.apart = 0.0  # seconds of the running gate that are another's
        self.processes = processes_for(prepared, zygote, folder_name(candidate, overrides))
        self.from_text = told_by_text(self)

    def run(self, timing: bool) -> Report:
        """All gates until one fails."""
        from kforge.worker import gpu_lock

        begin = time.monotonic()
        status, self.timing = Status.VERIFIED, timing
        with self.processes, self._shared:
            self._shared.enter_context(gpu_lock(self.prepared.device, shared=True))  # nobody times meanwhile
            self.processes.fork_ahead(timing, self.from_text)
            if self.processes.ready:  # beside work that leaves the device's driver alone
                self._keep_spare()
            try:
                for name, run in self.order():
                    if name == "performance" and not timing:
                        self.skip(name, "not asked for")
                    else:
                        with self.gate(name):
                            run()
            except Ended as ended:
                status = ended.status
        return assemble(self, status, time.monotonic() - begin)

    def order(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """The gates by name, cheapest first."""
        return (
            ("static", self.check_text),
            ("build", self.build),
            ("correctness", self.correctness),
            ("honesty", self.honesty),
            ("memory", self.examine),
            ("performance", self.time),
        )

    @contextmanager
    def gate(self, name: str) -> Iterator[None]:
        """Records the gate's outcome and time, and tells the listener."""
        begin, self.apart = time.monotonic(), 0.0
        count = len(self.gates)
        try:
            yield
        except Ended as ended:
            passed = None if ended.status is Status.BUILT else False
            earlier = self.apart + sum(gate.seconds for gate in self.gates[count:])
            self.record(Gate(ended.gate or name, passed, ended.detail, round(_since(begin) - earlier, 4)))
            raise
        if len(self.gates) == count:
            self.record(Gate(name, True, "", round(_since(begin) - self.apart, 4)))

    def passed(self, name: str, detail: str, begin: float) -> None:
        """This gate passed, with something to say."""
        self.record(Gate(name, True, detail, _since(begin)))

    def skip(self, name: str, why: str) -> None:
        """This gate did not run, and why."""
        self.record(Gate(name, None, why))

    def record(self, gate: Gate) -> None:
        self.gates.append(gate)
        self.on_event(
            "gate", {"name": gate.name, "passed": gate.passed, "detail": gate.detail, "seconds": gate.seconds}
        )

    # gates

    def check_text(self) -> None:
        """static: what the text alone says."""
        available, reason = static_cuda.is_available()
        if not available:
            self.notes.append(f"CUDA source rules: {reason}")
        self.static = check_static(self.candidate, **reference_facts(self.prepared))
        found = self.static.rejections
        if found:
            raise Ended(Status.REJECTED, "; ".join(map(str, found[:5])))
        if not self.static.has_kernel:
            self.watch.fire("no_own_kernel", "makes no kernel")
            raise Ended(Status.NO_CANDIDATE, "makes no kernel of its own (Kernel, triton.jit, load_inline, ...)")

    def build(self) -> None:
        """build: every kernel for the architecture, then the warm step in a process of its own."""
        Building(self).run()

    def _keep_spare(self) -> None:
        """Start the processes of the next evaluation."""
        if self.more and self.timing:
            keep_spare(self.prepared, self.zygote, self.from_text)

    def correctness(self) -> None:
        """correctness: the plan, in a process that may not execute programs."""
        if not self.processes.ready:
            self._keep_spare()
        collect(self.prepared.ending)  # long over by now: its buffers are wanted
        try:
            if self.from_text:
                failure = None
                try:
                    self._answers()
                except Ended as ended:
                    failure = ended
                if build_the_rest(self, failure):
                    self._answers()
                elif failure is not None:
                    raise failure
            else:
                self._answers()
        finally:
            self.save_repro(crashed=self.died)

    def _answers(self) -> None:
        """The plan's cases in one process."""

        def tell(result: Any) -> None:
            self.on_event("case", {"label": result.label, "passed": result.passed})

        judge = Correctness(self.prepared, self.candidate, self.plan, self.watch, self.overrides, tell, self.refusals)
        judge.until = self.end_of("correctness")
        self.result = judge.result
        self.judged(judge, judge.run)

    def judge_afresh(self) -> None:
        """Forget what was judged so far, and judge with new processes in another folder."""
        self.from_text = False
        self.watch, self.refusals, self.result = Watch(), Refusals(), Result()
        key = folder_name(self.candidate, self.overrides)
        self.prepared.rooms[key] = self.prepared.folder / "candidates" / f"{key}-built"
        self.processes.afresh(self.prepared.rooms[key])
        self.processes.fork_ahead(self.timing)

    def judged(self, judge: Correctness, run: Callable[[Child], Result]) -> None:
        """`run` in a process that may not execute programs. Ended for a wrong answer and for its death, explained."""
        try:
            with failures(self.processes, judge.watch, Status.CRASHED, judge), self.processes.judged() as child:
                self.environment |= {f"sandbox {k}": v for k, v in child.in_force().items()}
                if self.environment["sandbox poison"].startswith("in force: allocations between guard bands"):
                    judge.watch.clear("guard_bands")
                run(child)
        except Ended as ended:
            cause = ended.__cause__
            if not (self.prepared.device == "cpu" and isinstance(cause, ChildFailed) and may_be_an_access(cause)):
                raise
            after_crash(self, judge)
        if self.prepared.device == "cpu":
            after_wrong(self, judge)
        if judge.result.failure is not None:
            raise Ended(judge.result.failure.status, judge.result.failure.detail)

    def honesty(self) -> None:
        """honesty: own kernels launched, no foreign operators, nothing left running."""
        found = honesty.judge(self.result, self.candidate, self.watch, self.notes)
        found = found or standing.observed(self.prepared.task.constraints, vendor_calls(self))
        if found is not None:
            raise Ended(*found)

    def examine(self) -> None:
        """memory: the emulator's instrumented modes; in plan full on a GPU compute-sanitizer too."""
        from kforge.kernel.emulator.mode import Kind, current_mode

        if self.plan.name == "quick" and current_mode().kind is not Kind.CHECKED:
            self.skip("memory", "not in plan quick")
            return
        begin = time.monotonic()
        judged = {result.label for result in self.result.cases}
        plan = replace(self.plan, cases=tuple(case for case in self.plan.cases if case.label in judged))
        found = memory.Examination()
        with failures(self.processes, self.watch, Status.CRASHED):
            until = self.end_of("memory")
            memory.on_emulator(self.prepared, plan, self.processes.instrumented, self.load, found, until)
            if self.plan.name == "full" and self.prepared.device != "cpu" and not found.wrong:
                memory.on_gpu(self.prepared, plan, lambda: self.processes.fork("build"), self.load, found)
        self.warnings += found.warnings
        self.notes += found.skipped + found.late
        if found.ran:
            self.watch.clear("out_of_bounds", "race")
        if found.wrong:
            self.watch.fire("race" if found.kind in ("race", "order") else "out_of_bounds", found.wrong)
            where = f"{found.case.label}: " if found.case else ""
            expected = self.prepared.expected(found.case) if found.case else None
            self.result.failure = Failure(Status.WRONG, where + found.wrong, found.case, expected)
            self.save_repro(found.on)
            raise Ended(Status.WRONG, where + found.wrong)
        if found.ran:
            self.passed("memory", found.detail, begin)
        else:
            self.skip("memory", found.detail)

    def time(self) -> None:
        """performance: against the baselines, on a GPU only."""
        if self.prepared.device == "cpu":
            self.skip("performance", "untimed: the emulator has no speed; use a machine with a GPU")
            return
        self._shared.close()
        begin = time.perf_counter()
        if self.prepared.spare is not None:
            self.prepared.spare.settle()
        self.processes.note("wait: spare processes", begin)
        ending = self.prepared.ending if self.more else None
        with failures(self.processes, self.watch, Status.CRASHED), self.processes.timed(ending) as child:
            found = Measurement(
                self.prepared,
                self.candidate,
                self.zygote,
                self.plan,
                self.overrides,
                self.watch,
                self.processes.fork,
                self.extras,
                lambda text: self.on_event("message", {"text": text, "level": "info"}),
                self.until,
            ).run(child)
            if self.plan.name != "quick":  # after the times, which neither may disturb
                call = self.prepared.inputs(next(case for case in self.plan.cases if case.shape == GIVEN))
                found["memory_ratio"] = memory_ratio(self.prepared, child.call(call).peak_bytes or 0)
                self._share(child, call)
        self.environment |= found.pop("environment", {})
        self.performance = found
        if self.watch.hacked:
            fired = next(d for d in self.watch.detectors if d.fired)
            raise Ended(Status.HACKED, f"{fired.name}: {fired.detail}")
        if "costs" in found:
            build_s = sum(gate.seconds for gate in self.gates if gate.name == "build")
            found["costs"] = replace(found["costs"], build_s=build_s)

    def _share(self, child: Child, call: Call) -> None:
        """The share of device time in own kernels, by the profiler of the candidate's process."""
        try:
            times = child.kernel_times(call) or child.kernel_times(call)  # the first look may come to nothing
        except ChildFailed as failure:
            if failure.kind != "raised":
                raise
            self.watch.unread["kernel_share"] = failure.text.strip().splitlines()[-1]
            return
        dishonest, warning = honesty.share(times, self.result.launches, vendor_calls(self), self.watch)
        self.warnings += [warning] if warning else []
        if dishonest:
            raise Ended(Status.HACKED, f"kernel_share: {dishonest}")

    # helpers

    def end_of(self, gate: str) -> float:
        """When this gate does nothing more that is not required, so that the later ones have their share."""
        part = ENDS[self.prepared.device.split(":")[0]][gate]
        return self.begun + part * max(0.0, self.until - self.begun)

    def load(self, child: Any, seed: int = 0) -> None:
        reply = load_candidate(self.prepared, child, self.candidate, self.overrides, state_seed=seed)
        if reply.problem:
            raise StateProblem(reply.problem)

    def save_repro(self, instrumented: str = "", crashed: bool = False) -> None:
        """repro.py of the failure. instrumented: the device on which an instrument of the memory gate found it.
        crashed: its launches end the process.
        """
        failure = self.result.failure
        wanted = (Status.WRONG, Status.HACKED, Status.CRASHED, Status.TIMED_OUT)
        if failure and self.repro_root and failure.expected is not None and failure.status in wanted:
            root = self.repro_root
            self.repro = str(write_repro(self.prepared, self.candidate, failure, root, instrumented, crashed))


def _usable(plan: Plan, prepared: Prepared) -> Plan:
    """Without the variants that this device cannot hold (the report lists them)."""
    if prepared.facts is None:
        return plan
    return replace(plan, cases=tuple(c for c in plan.cases if c.variant in prepared.facts.variants))


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 4)
