"""The build gate: what the compiler says of every kernel, then every form of inputs built in a process of its own.

A kernel specialises on sizes, strides and alignments, and the process that is judged may not execute a compiler: so a
call on stand-ins of each form builds and launches nothing. On the emulator the first case is judged before the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kforge.environment.allowance import Allowance
from kforge.environment.correctness import Correctness
from kforge.environment.detectors import Watch
from kforge.environment.ending import Ended, failures, require_room
from kforge.environment.expected import Skip
from kforge.environment.inputs import SEEDS, Case
from kforge.environment.report import Gate, KernelBuild, Status
from kforge.errors import ChildFailed, MissingError

if TYPE_CHECKING:
    from kforge.environment.evaluation import Evaluation
    from kforge.worker import Child

SHARE = 0.5  # of a plan's seconds, for building what only its extra cases need
MANY_FORMS = 4  # of inputs, from which the first case is judged on the emulator before the other forms are built
COMPILER = {"timed_out": "the compiler came to no end of this source", "crashed": "the compiler died of this source"}
DOUBLING = "What macros, includes, templates or unrolled loops make of it may double at every level"
LOOK_SEED = SEEDS  # of that case, which no plan has: what a candidate keeps of it helps it nowhere


class Building:
    """The gate for one evaluation, whose plan loses the cases that are not built."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation, self.prepared = evaluation, evaluation.prepared

    def run(self) -> None:
        """Resources, the first form and a look at its answer, then the others."""
        begin, first, processes = time.monotonic(), self._first_case(), self.evaluation.processes
        with self._failures(Status.BUILD_FAILED), processes.building() as child:
            missing = self._resources(child)
            names = [build.name for build in self.evaluation.builds]
            self.evaluation.on_event("building", {"arch": self.evaluation.arch, "kernels": names})
            if first is not None:
                self.evaluation.load(child)
                self._warm_once(child, first)
            elif self.prepared.device == "cpu" or not missing:
                self._warm(child)
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
        if missing:
            self.evaluation.skip("build", missing)

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

    def _resources(self, child: Child) -> str:
        """Registers, shared memory, spills by the real compiler. Returns why there are none, or the empty string.

        The compiler reads hostile text (an #include of /dev/zero, of the user's files): it runs in the sandbox. None of
        the candidate's Python does: where the compiler has no end, or dies, it is of the source.
        """
        try:
            found = child.resources(self.evaluation.candidate, self.evaluation.arch)
        except ChildFailed as failure:
            if failure.kind in COMPILER:
                require_room(self.evaluation.processes.folder, failure)
                words = f"{COMPILER[failure.kind]}: {failure.text}. {DOUBLING}"
                raise Ended(Status.BUILD_FAILED, words) from failure
            if failure.error.get("kind") != MissingError.kind:
                raise
            return f"not built for {self.evaluation.arch}: {failure.error['message']}. {failure.error['hint']}"
        self.evaluation.builds = tuple(_kernel_build(item) for item in found)
        limits = [c.value for c in self.prepared.task.constraints if c.name == "max_shared"]
        for build in self.evaluation.builds:
            if limits and limits[0] is not None and build.shared > limits[0]:
                words = f"{build.name} uses {build.shared} bytes of shared memory, max_shared is {limits[0]}"
                raise Ended(Status.REJECTED, words)
        return ""

    def _warm(self, child: Child) -> None:
        """Construct and call on stand-ins, once for each form of inputs, where Kernels build and do not launch.

        Forms of extra cases only while time is left for them; cases of the others are taken out of the plan.
        """
        of = self.evaluation
        of.load(child)
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
        if unbuilt:
            of.unbuilt = tuple(case for case in of.plan.cases if case.form in unbuilt)
            of.plan = replace(of.plan, cases=tuple(case for case in of.plan.cases if case.form not in unbuilt))
            names = sorted({" ".join(filter(None, form[1:3])) for form in unbuilt})
            words = f"{allowance.why(of.plan.name)} to build for {len(unbuilt)} forms of inputs"
            of.notes.append(f"{words}: {', '.join(names[:12])} ...")

    def _warm_once(self, child: Child, case: Case) -> None:
        form = replace(case, distribution="x1", special="none")
        call = self.prepared.inputs(form)
        with self._failures(Status.CRASHED, f"called on {case.layout} inputs of shape {case.shape}: "):
            try:
                child.warm(call)
            except ChildFailed as failure:
                if self.evaluation.refusals.accept(case, failure):
                    return
                if failure.kind == "raised":
                    self.prepared.expected(form)  # Skip: the reference does not take these inputs either
                raise


def _kernel_build(item: Mapping[str, Any]) -> KernelBuild:
    names = ("name", "arch", "registers", "shared", "spill_bytes", "stack", "occupancy")
    return KernelBuild(**{name: item[name] for name in names}, constants=dict(item["constants"]))
