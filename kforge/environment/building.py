"""The build gate: what the compiler says of every kernel, then every form of inputs built in a process of its own.

A kernel specialises on sizes, strides and alignments, and the process that is judged may not execute a compiler: so a
call on stand-ins of each form builds and launches nothing. On the emulator the first case is judged before the rest.
On a GPU plan quick builds what these calls ask for and no other kernel of the text: the compiler is most of what an
evaluation takes. What a worker has built ahead, by the text alone, is judged without such calls; where it was not all,
everything is built.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kforge.environment.allowance import Allowance
from kforge.environment.asked import possible
from kforge.environment.correctness import Correctness
from kforge.environment.detectors import Watch
from kforge.environment.ending import Ended, failures, require_room
from kforge.environment.expected import Skip
from kforge.environment.inputs import GIVEN, SEEDS, Case
from kforge.environment.report import Gate, KernelBuild, Status
from kforge.environment.target import given
from kforge.errors import BuildError, ChildFailed, MissingError

if TYPE_CHECKING:
    from kforge.environment.evaluation import Evaluation
    from kforge.worker import Child

SHARE = 0.5  # of a plan's seconds, for building what only its extra cases need
MANY_FORMS = 4  # of inputs, from which the first case is judged on the emulator before the other forms are built
COMPILER = {"timed_out": "the compiler came to no end of this source", "crashed": "the compiler died of this source"}
DOUBLING = "What macros, includes, templates or unrolled loops make of it may double at every level"
OTHER_MAKERS = ("triton", "helion", "cupy", "pycuda", "cpp_extension")  # of kernels, which the text does not tell
NAMED = 12  # forms that one line of the report names
LOOK_SEED = SEEDS  # of that case, which no plan has: what a candidate keeps of it helps it nowhere


def told_by_text(evaluation: Evaluation) -> bool:
    """Whether what the compiler made of the text ahead may be all that the plan needs, so that nothing else is built.

    A process that calls the candidate on stand-ins needs a context of its own, which takes longer than all it does.
    """
    prepared, candidate = evaluation.prepared, evaluation.candidate
    if not (_in_haste(evaluation) and prepared.from_text and evaluation.processes.built):
        return False
    return not any(maker in candidate.files.get(candidate.module, "") for maker in OTHER_MAKERS)


def _in_haste(evaluation: Evaluation) -> bool:
    """Whether nothing is built that the plan does not launch: searching on a GPU."""
    return evaluation.prepared.device != "cpu" and evaluation.plan.name == "quick"


def build_the_rest(evaluation: Evaluation, failure: Ended | None) -> bool:
    """After the plan was judged with what the text told to build: whether that was not all, and the rest is built now.

    failure: how judging ended. What a process raised is found out again with everything built, which says at which gate
    it belongs. The next processes are new ones in another folder: whatever ran in the old ones tells them nothing.
    """
    cause, unbuilt = failure.__cause__ if failure else None, evaluation.result.unbuilt > 0
    raised = isinstance(cause, ChildFailed) and cause.kind == "raised"
    if not (unbuilt or raised):
        return False
    if unbuilt or (isinstance(cause, ChildFailed) and cause.error.get("kind") == BuildError.kind):
        evaluation.prepared.from_text = False  # the task's next candidates are likely to be made alike
    evaluation.judge_afresh()
    before, begin = evaluation.gates.pop(), time.monotonic()
    try:
        Building(evaluation).run()
    except Ended as ended:
        raise Ended(ended.status, ended.detail, ended.gate or "build") from ended
    seconds = time.monotonic() - begin
    evaluation.apart += seconds
    if not evaluation.gates or evaluation.gates[-1].name != "build":
        evaluation.record(replace(before, seconds=round(before.seconds + seconds, 4)))
    return True


class Building:
    """The gate for one evaluation, whose plan loses the cases that are not built."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation, self.prepared = evaluation, evaluation.prepared

    def run(self) -> None:
        """Resources, the first form and a look at its answer, then the others."""
        if self.evaluation.from_text and self._told():
            return
        if _in_haste(self.evaluation) and not self._limits():
            if missing := self._asked_for():
                self.evaluation.skip("build", missing)
            return
        begin, first, processes = time.monotonic(), self._first_case(), self.evaluation.processes
        with self._failures(Status.BUILD_FAILED), processes.building() as child:
            missing = self._compiled(child)
            if first is not None:
                self.evaluation.load(child)
                self._warm_once(child, first)
            elif self.prepared.device == "cpu" or not missing:
                self._warm(child)
                self._unforeseen(child, missing)
        if first is not None:  # with the builder gone: what runs next cannot ask it for anything
            built = round(time.monotonic() - begin, 4)
            try:
                self._first_look(first)
            except Ended as ended:
                words = missing or "for the task's own inputs; the others were left out"
                self.evaluation.record(Gate("build", None if missing else True, words, built))
                raise Ended(ended.status, ended.detail, "correctness") from ended
            with self._failures(Status.BUILD_FAILED), processes.building() as child:
                self._warm(child)
                self._unforeseen(child, missing)
        if missing:
            self.evaluation.skip("build", missing)

    def _told(self) -> bool:
        """What was built ahead; False where all of the text does not compile.

        Then what calls ask for is built instead, as for a candidate that nobody has built ahead: the kernel that does
        not compile may be one that none launches, and a verdict must not depend on who was quicker.
        """
        of = self.evaluation
        try:
            with self._failures(Status.BUILD_FAILED), of.processes.compiling() as child:
                missing = self._compiled(child)
        except Ended:
            if self._limits():  # then everything is built anyway
                raise
            of.from_text = False
            return False
        if missing:
            of.skip("build", missing)
        return True

    def _asked_for(self) -> str:
        """What calls on stand-ins ask for. Returns why nothing is built, or the empty string."""
        of = self.evaluation
        try:
            with self._failures(Status.BUILD_FAILED), of.processes.building() as child:
                self._warm(child)
                begin = time.perf_counter()
                of.builds = tuple(_kernel_build(item) for item in child.figures(of.arch))
                of.processes.note("build: figures", begin)
        except Ended as ended:
            cause = ended.__cause__
            if not isinstance(cause, ChildFailed):
                raise
            if cause.kind not in COMPILER and cause.error.get("kind") != MissingError.kind:
                raise
            with self._failures(Status.BUILD_FAILED), of.processes.compiling() as child:
                missing = self._compiled(child)  # whether it was the compiler
            if not missing:
                raise
            return missing
        of.on_event("building", {"arch": of.arch, "kernels": [build.name for build in of.builds]})
        return ""

    def _unforeseen(self, child: Child, missing: str) -> None:
        """Kernels that the candidate has made and its text does not name (computed names), built like the others."""
        of = self.evaluation
        if missing:
            return
        known = [build.name for build in of.builds]
        found = child.figures(of.arch, known, idle=True, element=given(self.prepared).element)
        of.builds += tuple(_kernel_build(item) for item in found)
        self._refuse_large(of.builds[len(known) :])

    def _limits(self) -> list[Any]:
        return [c.value for c in self.prepared.task.constraints if c.name == "max_shared"]

    def _failures(self, raised: Status, where: str = "") -> AbstractContextManager[None]:
        return failures(self.evaluation.processes, self.evaluation.watch, raised, where=where)

    def _first_case(self) -> Case | None:
        """What is judged before the rest is built; None for few forms, and on a GPU, whose processes are there."""
        cases = self.evaluation.plan.cases
        if self.prepared.device != "cpu" or len({case.form for case in cases}) < MANY_FORMS:
            return None
        case = next((case for case in cases if case.plain), None)
        return None if case is None else replace(case, seed=LOOK_SEED)

    def _first_look(self, case: Case) -> None:
        """One case in a process of its own: most mistakes show in any, and building for all forms takes long."""
        of, watch = self.evaluation, Watch()
        judge = Correctness(self.prepared, of.candidate, of.plan, watch, of.overrides, refusals=of.refusals)
        try:
            of.judged(judge, lambda child: judge.look(child, case))
        except Ended:
            of.watch, of.result = watch, judge.result
            of.on_event("case", {"label": case.label, "passed": False})
            of.save_repro(crashed=of.died)
            raise

    def _compiled(self, child: Child) -> str:
        """`_resources`, told to the listener."""
        missing = self._resources(child)
        names = [build.name for build in self.evaluation.builds]
        self.evaluation.on_event("building", {"arch": self.evaluation.arch, "kernels": names})
        return missing

    def _resources(self, child: Child) -> str:
        """Registers, shared memory, spills by the real compiler. Returns why there are none, or the empty string.

        The compiler reads hostile text (an #include of /dev/zero, of the user's files): it runs in the sandbox. None of
        the candidate's Python does: where the compiler has no end, or dies, it is of the source.
        """
        of, begin = self.evaluation, time.perf_counter()
        try:
            found = child.resources(of.candidate, of.arch, given(self.prepared).element, of.overrides)
        except ChildFailed as failure:
            if failure.kind in COMPILER:
                require_room(of.processes.folder, failure)
                words = f"{COMPILER[failure.kind]}: {failure.text}. {DOUBLING}"
                raise Ended(Status.BUILD_FAILED, words) from failure
            if failure.error.get("kind") != MissingError.kind:
                raise
            return f"not built for {of.arch}: {failure.error['message']}. {failure.error['hint']}"
        of.processes.note("build: compiler", begin)
        of.builds = tuple(_kernel_build(item) for item in found)
        self._refuse_large(of.builds)
        return ""

    def _refuse_large(self, builds: Iterable[KernelBuild]) -> None:
        """Ended for a kernel with more shared memory than the task's constraint allows."""
        limits = self._limits()
        for build in builds:
            if limits and limits[0] is not None and build.shared > limits[0]:
                words = f"{build.name} uses {build.shared} bytes of shared memory, max_shared is {limits[0]}"
                raise Ended(Status.REJECTED, words)

    def _warm(self, child: Child) -> None:
        """Construct and call on stand-ins, once for each form of inputs, where Kernels build and do not launch.

        Forms of extra cases only while time is left for them; cases of the others are taken out of the plan.
        """
        of, begin = self.evaluation, time.perf_counter()
        of.load(child)
        of.processes.note("build: load", begin)
        begin = time.perf_counter()
        device, until = self.prepared.device, of.end_of("build")
        allowance = Allowance(device, SHARE * of.plan.seconds(device), child, until)
        forms: dict[tuple[int, str, str, str], Case] = {}
        for case in of.plan.cases:
            forms.setdefault(case.form, case)
        unbuilt = set()
        for form, case in forms.items():
            if case.extra and allowance.over():
                unbuilt.add(form)
            elif case not in of.refusals:
                with suppress(Skip):
                    self._warm_once(child, case)
        of.processes.note("build: forms", begin)
        if unbuilt:
            of.unbuilt = tuple(case for case in of.plan.cases if case.form in unbuilt)
            of.plan = replace(of.plan, cases=tuple(case for case in of.plan.cases if case.form not in unbuilt))
            left = {case.form for case in possible(self.prepared, of.unbuilt)}
            names = sorted({" ".join(filter(None, form[1:3])) for form in left})
            words = f"{allowance.why(of.plan.name)} to build for {len(left)} forms of inputs"
            of.notes += [f"{words}: {', '.join(names[:NAMED])}{' ...' if len(names) > NAMED else ''}"] if left else []

    def _warm_once(self, child: Child, case: Case) -> None:
        form = replace(case, distribution="x1", special="none")
        call = self.prepared.drawn(case) or self.prepared.inputs(form)
        with self._failures(Status.CRASHED, self._called_on(case)):
            try:
                child.warm(call)
            except ChildFailed as failure:
                if self.evaluation.refusals.accept(case, failure):
                    return
                if failure.kind == "raised":
                    self.prepared.expected(form)  # Skip: the reference does not take these inputs either
                    if case.shape == GIVEN and case.variant and not failure.error:  # what it says is said first
                        text = failure.text.strip()
                        said = f"{self._called_on(case)}{text.splitlines()[-1]}\n{text}"
                        raise Ended(Status.CRASHED, said) from failure
                raise

    def _called_on(self, case: Case) -> str:
        """In words, before an error: a variant of the task's own is nothing that a candidate may refuse."""
        if case.shape != GIVEN or not case.variant:
            return f"called on {case.layout} inputs of variant {case.variant}, shape {case.shape}: "
        shapes = self.prepared.shapes.get((case.variant, case.shape), {})
        sizes = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in shapes.items() if shape)
        return f"does not serve variant {case.variant} of the task's inputs ({sizes}), {case.layout}: "


def _kernel_build(item: Mapping[str, Any]) -> KernelBuild:
    names = ("name", "arch", "registers", "shared", "spill_bytes", "stack", "occupancy")
    return KernelBuild(**{name: item[name] for name in names}, constants=dict(item["constants"]))
