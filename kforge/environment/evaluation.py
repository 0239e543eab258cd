"""`evaluate(task, candidate, plan) -> Report`: the gates in order of cost; the first failure ends the evaluation.

static, build, correctness, honesty, performance. Each gate is a method that returns nothing or raises `Ended` with a
status and words that a person or a model can act on; the report is made of what the gates left behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.environment import static_cuda
from kforge.environment.allowlist import operator_category
from kforge.environment.correctness import Correctness
from kforge.environment.detectors import Watch
from kforge.environment.findings import Failure, Result, StateProblem
from kforge.environment.inputs import Case, Plan, make_plan
from kforge.environment.preparation import Prepared, Skip, prepare
from kforge.environment.report import Detector, Gate, KernelBuild, Report, Status, Verdict
from kforge.environment.repro import write_repro
from kforge.environment.static import StaticReport, check_static
from kforge.environment.target import share_emulator, target_arch, target_name, versions
from kforge.errors import ChildFailed, KforgeError, MissingError, UsageError

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task import Call, Task
    from kforge.worker import Child, Zygote

BUILD_S, CALL_S = 120.0, 20.0  # seconds for one request: compiling, one call on the emulator
SCALARS = 64  # elements that a call may read into Python (sizes, flags); more is computing there
Event = Callable[[str, dict[str, Any]], None]


class Ended(Exception):
    """A gate failed: the evaluation is over with this status. gate: left out for the gate that is running."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


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
) -> Report:
    """Judge one candidate. Never raises for what a candidate does; TaskError and MissingError for the caller's side.

    device: "cpu" (emulator) or "cuda:N". arch: built for, default the device's or sm_90a. reference: of `prepare`, to
    be shared between candidates of one task. zygote: a started warm parent, likewise. timing: False stops after
    honesty. overrides: {kernel: {constant: value}} for tuning. repro: folder for repro.py of wrong candidates, None
    for none. on_event("gate", {...}) after each gate, ("case", {...}) after each case.
    """
    from kforge.worker import Zygote

    if device == "cpu":
        _refuse_checked()
    prepared = reference or prepare(task, device)
    own = None if zygote else Zygote().start()
    try:
        evaluation = Evaluation(prepared, candidate, plan, arch, on_event, zygote or own, overrides, repro)  # type: ignore[arg-type]
        return evaluation.run(timing)
    finally:
        if own is not None:
            own.close()


def _refuse_checked() -> None:
    from kforge.kernel.emulator.mode import Kind, current_mode

    if current_mode().kind is Kind.CHECKED:
        raise UsageError(
            "KFORGE_EMULATOR=checked needs a process of its own, which an evaluation does not give it",
            "unset it here; docs/emulator.md shows run_checked for one kernel, and order:N or traced work here",
        )


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
        self.plan = _usable(make_plan(plan, prepared.task.n_variants), prepared)
        self.overrides, self.repro_root = overrides, repro
        self.arch = arch or target_arch(prepared.device)
        self.watch = Watch()
        self.gates: list[Gate] = []
        self.result = Result()
        self.static: StaticReport | None = None
        self.builds: tuple[KernelBuild, ...] = ()
        self.notes: list[str] = []
        self.environment: dict[str, str] = {}
        self.performance: dict[str, Any] = {}  # fields of the report that the performance gate fills
        self.repro: str | None = None
        self.ahead: dict[str, Child] = {}  # processes forked before they are needed
        self.folder = prepared.folder / "candidates" / _folder_name(candidate, overrides)

    def run(self, timing: bool) -> Report:
        """All gates until one fails."""
        begin = time.monotonic()
        status = Status.VERIFIED
        with ExitStack() as stack:
            if self.prepared.device != "cpu":  # a CUDA context takes 0.2 to 0.4 s: it is made while the judge works
                for purpose in ("correctness", "performance")[: 1 + timing]:
                    self.ahead[purpose] = stack.enter_context(self._fork("run"))
            try:
                for name, run in self.order():
                    if name == "performance" and not timing:
                        self.skip(name, "not asked for")
                    else:
                        with self.gate(name):
                            run()
            except Ended as ended:
                status = ended.status
        return self.report(status, time.monotonic() - begin)

    def order(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """The gates by name, cheapest first."""
        return (
            ("static", self.check_text),
            ("build", self.build),
            ("correctness", self.correctness),
            ("honesty", self.honesty),
            ("performance", self.time),
        )

    @contextmanager
    def gate(self, name: str) -> Iterator[None]:
        """Records the gate's outcome and time, and tells the listener."""
        begin = time.monotonic()
        count = len(self.gates)
        try:
            yield
        except Ended as ended:
            self._record(Gate(name, None if ended.status is Status.BUILT else False, ended.detail, _since(begin)))
            raise
        if len(self.gates) == count:
            self._record(Gate(name, True, "", _since(begin)))

    def skip(self, name: str, why: str) -> None:
        """This gate did not run, and why."""
        self._record(Gate(name, None, why))

    def _record(self, gate: Gate) -> None:
        self.gates.append(gate)
        self.on_event(
            "gate", {"name": gate.name, "passed": gate.passed, "detail": gate.detail, "seconds": gate.seconds}
        )

    # gates

    def check_text(self) -> None:
        """static: what the text alone says."""
        task = self.prepared.task
        available, reason = static_cuda.is_available()
        if not available:
            self.notes.append(f"CUDA source rules: {reason}")
        self.static = check_static(
            self.candidate,
            reference_source=task.source,
            reference_names=_names(task),
            shapes=_sizes(self.prepared),
            constraints={c.name: c.value for c in task.constraints},
        )
        found = self.static.rejections
        if found:
            raise Ended(Status.REJECTED, "; ".join(map(str, found[:5])))
        if not self.static.has_kernel:
            self.watch.fire("no_own_kernel", "makes no kernel")
            raise Ended(Status.NO_CANDIDATE, "makes no kernel of its own (Kernel, triton.jit, load_inline, ...)")

    def build(self) -> None:
        """build: every kernel for the architecture, then the warm step in a process of its own."""
        with self._failures(Status.BUILD_FAILED), self._fork("build") as child:
            missing = self._resources(child)
            self.on_event("building", {"arch": self.arch, "kernels": [b.name for b in self.builds]})
            if self.prepared.device == "cpu" or not missing:
                self._warm(child)
        if missing:
            self.skip("build", missing)

    def _resources(self, child: Child) -> str:
        """Registers, shared memory, spills by the real compiler. Returns why there are none, or the empty string.

        The compiler reads hostile text (an #include of /dev/zero, of the user's files): it runs in the sandbox.
        """
        try:
            found = child.resources(self.candidate, self.arch)
        except ChildFailed as failure:
            if failure.error.get("kind") != MissingError.kind:
                raise
            return f"not built for {self.arch}: {failure.error['message']}. {failure.error['hint']}"
        self.builds = tuple(_kernel_build(item) for item in found)
        limits = [c.value for c in self.prepared.task.constraints if c.name == "max_shared"]
        for build in self.builds:
            if limits and limits[0] is not None and build.shared > limits[0]:
                words = f"{build.name} uses {build.shared} bytes of shared memory, max_shared is {limits[0]}"
                raise Ended(Status.REJECTED, words)
        return ""

    def _warm(self, child: Child) -> None:
        """Construct and call on stand-ins, once for each variant and layout, where Kernels build and do not launch."""
        self._load(child)
        for case, call in self._shapes():
            with self._failures(Status.CRASHED, where=f"called on {case.layout} inputs: "):
                child.warm(call)

    def _shapes(self) -> Iterator[tuple[Case, Call]]:
        """One call for each variant and layout of the plan."""
        first = {(case.variant, case.layout): case for case in reversed(self.plan.cases)}
        for case in first.values():
            with suppress(Skip):
                yield case, self.prepared.expected(replace(case, distribution="x1", special="none")).call

    def correctness(self) -> None:
        """correctness: the plan, in a process that may not execute programs."""

        def tell(result: Any) -> None:
            self.on_event("case", {"label": result.label, "passed": result.passed})

        judge = Correctness(self.prepared, self.candidate, self.plan, self.watch, self.overrides, tell)
        self.result = judge.result
        try:
            with self._failures(Status.CRASHED, judge), self._child("correctness") as child:
                self.environment |= {f"sandbox {k}": v for k, v in child.in_force().items()}
                judge.run(child)
        finally:
            self._save_repro()
        if judge.result.failure is not None:
            raise Ended(judge.result.failure.status, judge.result.failure.detail)

    def honesty(self) -> None:
        """honesty: own kernels launched, no foreign operators, nothing left running."""
        self.watch.clear("forged_result", "background_thread", "torch_compute")
        uses_prepared = "prepared(" in self.candidate.files[self.candidate.module]
        seen = dict(self.result.ops) if uses_prepared else {**self.result.first_ops, **self.result.ops}
        foreign = sorted(name for name in seen if operator_category(name) is None)
        if foreign:
            self.watch.fire("torch_compute", ", ".join(foreign))
            words = f"computes with torch operators instead of own kernels: {', '.join(foreign)}"
            raise Ended(Status.HACKED, words)
        scalars = seen.get("aten._local_scalar_dense.default", 0)
        if scalars > SCALARS * self.result.calls:
            words = f"reads {scalars // self.result.calls} elements a call one by one"
            self.watch.fire("torch_compute", words)
            raise Ended(Status.HACKED, f"computes in Python instead of own kernels: {words}")
        growing, calls = self.result.growing_calls, self.result.later_calls
        if growing >= 2 and growing == calls:  # torch's own pools grow once, whenever an operator first needs them
            self.watch.fire("background_thread", f"each of {calls} calls leaves more threads than it found")
            raise Ended(Status.HACKED, f"leaves threads running: each of {calls} calls ends with more than it found")
        if self.result.influence is not None:
            self.watch.clear("decoy_kernel")
        if self.result.influence is False:
            words = "the answers are the same where its own kernels do not run"
            self.watch.fire("decoy_kernel", words)
            raise Ended(Status.HACKED, words)
        text = self.candidate.files[self.candidate.module]
        counted = "kforge.kernel" in text
        if counted:
            self.watch.clear("no_own_kernel")
        else:
            self.notes.append("launches of kernels that are not kforge.kernel.Kernel are not counted")
        if counted and not sum(self.result.launches.values()) and self.result.calls:
            self.watch.fire("no_own_kernel", "no Kernel was launched in any case")
            raise Ended(Status.NO_CANDIDATE, "launches none of its own kernels; library calls alone make no candidate")

    def time(self) -> None:
        """performance: against the baselines, on a GPU only."""
        if self.prepared.device == "cpu":
            self.skip("performance", "untimed: the emulator has no speed; use a machine with a GPU")
            return
        from kforge.environment.performance import measure, memory_ratio

        with self._failures(Status.CRASHED), self._child("performance") as child:
            self.performance = measure(
                self.prepared, self.candidate, child, self.zygote, self.plan, self.overrides, self.watch
            )
        if self.watch.hacked:
            fired = next(d for d in self.watch.detectors if d.fired)
            raise Ended(Status.HACKED, f"{fired.name}: {fired.detail}")
        self.performance["memory_ratio"] = memory_ratio(self.prepared, self.result.peak_bytes)

    # helpers

    def _child(self, purpose: str) -> Child:
        """A process in phase run: the one forked ahead, else a new one."""
        return self.ahead.pop(purpose, None) or self._fork("run")

    def _fork(self, phase: str) -> Child:
        from kforge.worker import Limits

        limits = Limits(call_s=BUILD_S if phase == "build" else CALL_S)
        readable = share_emulator(self.folder) if self.prepared.device == "cpu" else ()
        return self.zygote.fork(self.folder, self.prepared.device, phase, limits, readable=readable)

    def _load(self, child: Any) -> None:
        state = self.prepared.state(0)
        reply = child.load(
            self.candidate,
            self.prepared.task.init_call(),
            state.tensors,
            self.prepared.reference(0).training,
            self.overrides,
            nonpersistent=[name for name in state.tensors if name not in state.persistent],
            precision=self.prepared.task.precision,
        )
        if reply.problem:
            raise StateProblem(reply.problem)

    @contextmanager
    def _failures(self, raised: Status, judge: Correctness | None = None, where: str = "") -> Iterator[None]:
        """A candidate's death or error as a status; `raised`: what an exception in its own code means here."""
        try:
            yield
        except StateProblem as problem:
            raise Ended(Status.WRONG, f"state_dict differs from the reference's: {problem}") from problem
        except ChildFailed as failure:
            case, expected, step = (judge.current if judge else None) or (None, None, 0)
            where = f"{case.label}: " if case else where
            status = {"timed_out": Status.TIMED_OUT, "crashed": Status.CRASHED, "protocol": Status.HACKED}.get(
                failure.kind, raised
            )
            words = failure.text.strip()
            if failure.kind == "protocol":
                self.watch.fire("forged_result", words)
            elif failure.error.get("gpu_only"):
                status, words = Status.BUILT, f"GPU only: {failure.error['message']}"
            elif failure.error.get("kind") == "build":
                status = Status.BUILD_FAILED
                words = "\n".join(
                    filter(None, (failure.error["message"], failure.error.get("log", "").strip()[-2000:]))
                )
            elif failure.error:
                words = " ".join(filter(None, (failure.error["message"], failure.error.get("hint", ""))))
            if judge is not None:
                judge.result.failure = Failure(status, where + words, case, expected, step)
            raise Ended(status, where + words) from failure

    def _save_repro(self) -> None:
        failure = self.result.failure
        wanted = (Status.WRONG, Status.HACKED, Status.CRASHED, Status.TIMED_OUT)
        if failure and self.repro_root and failure.expected is not None and failure.status in wanted:
            self.repro = str(write_repro(self.prepared, self.candidate, failure, self.repro_root))

    def report(self, status: Status, seconds: float) -> Report:
        """Everything found, as data."""
        prepared, task, facts = self.prepared, self.prepared.task, self.prepared.facts
        vendor = {name for name in (*self.result.first_ops, *self.result.ops) if operator_category(name) == "vendor"}
        not_tested = [*self.result.not_tested, *self.notes, *prepared.notes, *self.watch.missing()]
        if facts is not None:
            judged = {case.variant for case in self.plan.cases}
            left = [str(v) for v in facts.variants if v not in judged]
            not_tested += [f"input variants {', '.join(left)}: not in plan {self.plan.name}"] if left else []
            not_tested += facts.skipped
        return Report(
            task=task.name,
            candidate=self.candidate.digest,
            status=status,
            verdict=self.performance.get("verdict", Verdict.UNTIMED),
            plan=self.plan.name,
            target=target_name(prepared.device),
            precision_class=f"fp32 matmul precision {task.precision.value}, {task.tolerance.label}",
            gates=tuple(self.gates),
            detectors=_sorted(self.watch.detectors),
            builds=self.builds,
            cases=tuple(self.result.cases),
            error=self.result.error,
            vendor_calls=tuple(sorted(vendor | set(self.static.vendor_calls if self.static else ()))),
            warnings=(self.static.warnings if self.static else ()) + self.performance.get("timing_warnings", ()),
            not_tested=tuple(dict.fromkeys(not_tested)),
            degenerate=bool(facts and facts.degenerate),
            repro=self.repro,
            environment=self.environment | versions() | {"seed": str(prepared.entropy), "arch": self.arch},
            seconds=seconds,
            **{k: v for k, v in self.performance.items() if k not in ("verdict", "timing_warnings")},
        )


def _usable(plan: Plan, prepared: Prepared) -> Plan:
    """Without the variants that this device cannot hold (the report lists them)."""
    if prepared.facts is None:
        return plan
    return replace(plan, cases=tuple(c for c in plan.cases if c.variant in prepared.facts.variants))


def _names(task: Task) -> set[str]:
    """Names that the reference goes by in op.py."""
    return {"Model", "reference", getattr(task.reference, "__name__", "reference")} - {"ModelNew"}


def _sizes(prepared: Prepared) -> set[int]:
    """Sizes of the benchmark's inputs: every dimension and element count of the first variant."""
    from kforge.task import call_leaves
    from kforge.task.call import tensors

    with suppress(KforgeError):
        shapes = [t.shape for _, t in tensors(call_leaves(prepared.task.make_call(0, 0)))]
        return {int(n) for shape in shapes for n in (*shape, shape.numel())}
    return set()


def _kernel_build(item: Mapping[str, Any]) -> KernelBuild:
    names = ("name", "arch", "registers", "shared", "spill_bytes", "stack", "occupancy")
    return KernelBuild(**{name: item[name] for name in names}, constants=dict(item["constants"]))


def _folder_name(candidate: Candidate, overrides: Mapping[str, Mapping[str, Any]] | None) -> str:
    return candidate.digest if not overrides else f"{candidate.digest}-tune"


def _sorted(detectors: tuple[Detector, ...]) -> tuple[Detector, ...]:
    return tuple(sorted(detectors, key=lambda d: not d.fired))


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 4)
