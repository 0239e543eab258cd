"""The judge's handle to one candidate's process: load, warm, call, arm, time; and its certain end.

line.py sends requests and ends the child, exchange.py carries tensors, answers.py checks what comes back.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from kforge.errors import UsageError
from kforge.worker import answers
from kforge.worker.exchange import Exchange
from kforge.worker.replies import Armed, Batch, CallReply, DeviceEvent, Inspected, KernelTime, LoadReply, Recorded
from kforge.worker.sandbox import SCRATCH
from kforge.worker.shelf import sizes_of
from kforge.worker.tensors import pack
from kforge.worker.timer import steady_overhead

if TYPE_CHECKING:
    import torch

    from kforge.kernel.candidate import Candidate
    from kforge.task.backward import Gradients
    from kforge.task.call import Call

AWAKE_S = 0.1  # longer than a batch


class Child(Exchange):
    """One candidate's process. Made by Zygote.fork; use as a context manager: leaving it kills all that is left."""

    _folder = Path()
    overhead_ms: float | None = None  # of a timed call, where load made a timer
    batch_ms = 0.0  # of a batch beside its calls
    calibration_s = 0.0
    _steady: ClassVar[dict[str, float]] = {}  # what a timed call cost the child before this one, by device

    def begin(
        self,
        phase: str,
        folder: Path,
        env: Mapping[str, str],
        readable: Iterable[Path],
        writable: Iterable[Path],
        guard: Path | None = None,
        timer: bool = False,
    ) -> None:
        """Send the start message; the child works on it while the judge goes on."""
        self._folder = folder
        self._shelf.moved = (
            self.device == "cpu" or guard is not None
        )  # where answers are judged, not where calls are timed
        self._channel.send(
            {
                "nonce": self._nonce,
                "device": self.device,
                "phase": phase,
                "folder": str(folder),
                "env": dict(env),
                "readable": [str(p) for p in (*readable, *((guard.parent,) if guard else ()))],
                "writable": [str(p) for p in writable],
                "guard": str(guard or ""),
                "timer": timer,
            }
        )

    def in_force(self) -> dict[str, str]:
        """Each part of the sandbox with "in force ..." or "absent: reason"; how tensors travel."""
        parts = {**self.hello["in_force"], "poison": str(self.hello["poison"])}
        if self._memory is None:
            return {**parts, "tensors": "sealed memfds"}
        ipc = "CUDA IPC" if self._memory.ipc else f"staged through the host: {self._memory.reason}"
        return {**parts, "tensors": ipc}

    # -- requests --------------------------------------------------------------------------------------------------

    def load(
        self,
        candidate: Candidate,
        init: Call,
        state: Mapping[str, torch.Tensor],
        training: bool = False,
        overrides: Mapping[str, Any] | None = None,
        *,
        nonpersistent: Iterable[str] = (),
        precision: str = "highest",
        timer: bool = False,
        gradients: Gradients | None = None,
        again: bool = False,
    ) -> LoadReply:
        """Write the candidate's files, import its module, construct ModelNew(*init), move it, copy `state` by name.

        state: the reference's state_dict and, named in `nonpersistent`, its other buffers. overrides: constants per
        kernel. gradients: of the task of a pair. timer: make the timer now, before candidate code, because `time` will
        be asked. again: copy the state into the module that is there, as load_state_dict does, and do nothing else.
        ChildFailed as for every request; a state that does not fit is in the reply, not an error.
        """
        if not again:
            self._clean(candidate)
        begin = time.perf_counter()
        if timer:
            self.overhead_ms, self.batch_ms = self._calibrate()
            self.calibration_s = time.perf_counter() - begin
        trees = {"init": pack((init.args, init.kwargs)), "state": pack(dict(state))}
        places = {key: self._shelf.take_for(packed) for key, packed in trees.items()}
        fields: dict[str, Any] = {}
        for key, packed in trees.items():
            fields |= self._fill(places[key], packed, key)
        answer = self._request(
            "load",
            module=candidate.module,
            training=training,
            overrides={kernel: dict(values) for kernel, values in (overrides or {}).items()},
            nonpersistent=list(nonpersistent),
            precision=str(getattr(precision, "value", precision)),
            again=again,
            gradients=gradients.as_dict() if gradients is not None else None,
            **fields,
        )
        for buffers in places.values():
            self._shelf.give(buffers)
        with self._well_formed():
            return answers.load_reply(answer, time.perf_counter() - begin)

    def _clean(self, candidate: Candidate) -> None:
        """The candidate's files, its caches and its scratch folder: whatever else a *build* left is not its text."""
        kept = {path.name for path in candidate.write(self._folder)} | {"cache", SCRATCH}
        for entry in self._folder.iterdir():
            if entry.name in kept:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def resources(
        self,
        candidate: Candidate,
        arch: str,
        element: str = "float",
        overrides: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> list[dict[str, Any]]:
        """In phase build: what the compiler says of each declared kernel (kernel/report.py lists the fields).

        element: C type of what a kernel's `types=` binds. overrides: constants per kernel instead of declared ones.
        ChildFailed as for every request; `error` holds a BuildError with its log, or what is missing.
        """
        self._clean(candidate)
        given = {kernel: dict(values) for kernel, values in (overrides or {}).items()}
        answer = self._request("resources", timeout_s=timeout_s, arch=arch, element=element, overrides=given)
        with self._well_formed():
            return answers.rows(answer, "kernels")

    def figures(
        self, arch: str, known: Iterable[str] = (), idle: bool = False, element: str = "float"
    ) -> list[dict[str, Any]]:
        """In phase build, after `warm`: as `resources`, of what was built, with what a call needs. The child's word.

        known: names of kernels that are left out. idle: kernels that no call asked for are built as well.
        """
        answer = self._request("figures", arch=arch, known=list(known), idle=idle, element=element)
        with self._well_formed():
            return answers.rows(answer, "kernels")

    def made(self) -> list[str]:
        """Names of the Kernels that the candidate has made, by the child's word."""
        answer = self._request("made")
        with self._well_formed():
            return answers.names(answer)

    def probe(self, script: Candidate) -> float:
        """Write a script and its sources, and run it as worker/probing.py says; what it prints is in `log`. Seconds."""
        self._clean(script)
        answer = self._request("probe", script=script.module)
        with self._well_formed():
            return answers.seconds(answer["seconds"])

    @property
    def _awake_s(self) -> float:
        """How long we stay awake for an answer that our clock is held against; on a CPU that would be in the way."""
        return 0.0 if self.device == "cpu" else AWAKE_S

    def _calibrate(self) -> tuple[float, float]:
        """Milliseconds that a timed call (flush, launch, waiting) and a batch of them (messages, waking up) cost beside
        the samples, by our clock.

        Measured in the child before any candidate code is in it: the loop is slower here than in the judge.
        """

        def excess(iterations: int) -> float:
            begin = time.perf_counter()
            answer = self._request("calibrate", awake_s=self._awake_s, iterations=iterations)
            return (time.perf_counter() - begin) * 1e3 - math.fsum(answer["ms"])

        excess(1)  # makes the timer
        found = steady_overhead(excess, self._steady.get(self.device))
        self._steady[self.device] = found[0]
        return found

    def warm(self, call: Call, timeout_s: float | None = None) -> float:
        """In phase build: call once on stand-ins of the same shapes, layouts and alignment, values not sent.

        Kernels build and do not launch. Returns seconds.
        """
        packed = pack((call.args, call.kwargs))
        metas = [meta.as_json() for meta in packed.metas]
        answer = self._request("warm", timeout_s=timeout_s, tree=packed.tree, tree_metas=metas)
        with self._well_formed():
            return answers.seconds(answer["seconds"])

    def call(
        self,
        call: Call,
        *,
        place: str = "any",
        seed: int | None = None,
        state: str = "buffers",
        pattern: int | None = None,
        launch: bool = True,
        order: int = 0,
        grad: bool = False,
        anew: bool = False,
        timeout_s: float | None = None,
    ) -> CallReply:
        """Call ModelNew on copies of the inputs and bring everything it did back.

        place: "same" fills the previous call's buffers in place (same addresses; shapes must agree), "other" avoids
        them, "any" does not care. seed: torch.manual_seed before the call. state: none | buffers | all. pattern: the
        byte that memory fresh from now on holds (on the CPU), None: as it was. launch: False for a call in which no
        Kernel launches, which shows what is done without them. order: of threads on the emulator, 0 for its own.
        grad: with gradients enabled, which no parameter wants then. anew: what `prepared` keeps is derived again.
        """
        packed = pack((call.args, call.kwargs))
        buffers = self._buffers_for(packed, place)
        self._previous = buffers
        fields = {"seed": seed, "state": state, "pattern": pattern, "launch": launch, "order": order}
        fields |= {"grad": grad, "anew": anew}
        return self._observed("call", call, packed, buffers, timeout_s, **fields)

    def call_armed(self, call: Call, wrapper: str, timeout_s: float | None = None) -> CallReply:
        """One call through what `arm` made, its inputs refilled in place with values of the same shapes.

        It shows whether a graph really computes: a capture can be empty, or hold on to the values it was made with.
        """
        packed = pack((call.args, call.kwargs))
        if [(b.nbytes, b.side) for b in self._armed] != sizes_of(packed):
            raise UsageError("call_armed needs inputs of the shapes given to arm")
        return self._observed("call_armed", call, packed, self._armed, timeout_s, wrapper=wrapper, state="none")

    def arm(
        self,
        call: Call,
        wrappers: Sequence[str] = ("plain",),
        *,
        mutated: Sequence[int] = (),
        warmup: int = 3,
        replay: int = 1,
        host_calls: int = 1,
        timeout_s: float | None = None,
    ) -> Armed:
        """Make ready what `time` and `replay` run.

        wrappers: "plain"; "graph": a CUDA graph over static copies of the inputs; "replay": a graph of `replay` calls
        on the inputs themselves. mutated: numbers of the input tensors to restore before each call, outside the time.
        host_calls: over how many calls the host's time until a call returns is taken.
        """
        packed = pack((call.args, call.kwargs))
        self._shelf.give(self._armed)
        self._armed = self._shelf.take_for(packed)
        answer = self._request(
            "arm",
            timeout_s=timeout_s,
            wrappers=list(wrappers),
            mutated=list(mutated),
            warmup=warmup,
            replay=replay,
            host_calls=host_calls,
            **self._fill(self._armed, packed),
        )
        with self._well_formed():
            return answers.armed(answer)

    def time(
        self, iterations: int, flush: bool = True, wrapper: str = "plain", timeout_s: float | None = None
    ) -> Batch:
        """Time `iterations` calls in the child, under the judge's clock."""
        begin = time.perf_counter()
        answer = self._request(
            "time", timeout_s=timeout_s, awake_s=self._awake_s, iterations=iterations, flush=flush, wrapper=wrapper
        )
        wall = time.perf_counter() - begin
        with self._well_formed():
            return Batch(answers.timings(answer, iterations), wall)

    def replay(self, repeats: int, wrapper: str = "replay", timeout_s: float | None = None) -> float:
        """Seconds by the judge's clock for `repeats` calls of a wrapper back to back, no flush between."""
        begin = time.perf_counter()
        self._request("replay", timeout_s=timeout_s, repeats=repeats, wrapper=wrapper)
        return time.perf_counter() - begin

    # -- instruments -----------------------------------------------------------------------------------------------

    def record(self, call: Call, most_s: float, only: bool = False) -> Recorded:
        """In phase build on the CPU: call once while the emulator's launches are kept, to be run again by `examine`.

        most_s: seconds of launches after which no more are kept. only: keep them and run none.
        """
        answer = self._with_inputs("record", call, most_s=most_s, only=only)
        with self._well_formed():
            return answers.recorded(answer)

    def examine(self, modes: Sequence[str], budget_s: float, timeout_s: float) -> list[Inspected]:
        """Run the kept launches in the emulator's instrumented modes, each in a process of its own."""
        answer = self._request("examine", timeout_s=timeout_s, modes=list(modes), budget_s=budget_s)
        with self._well_formed():
            return answers.inspected(answer)

    def sanitize(self, call: Call, tools: Sequence[str], timeout_s: float) -> list[Inspected]:
        """In phase build on a GPU: one call in a process of its own under each tool of compute-sanitizer."""
        answer = self._with_inputs("sanitize", call, timeout_s + 10.0, tools=list(tools), limit_s=timeout_s)
        with self._well_formed():
            return answers.inspected(answer)

    def kernel_times(self, call: Call) -> list[KernelTime]:
        """On a GPU: device time by kernel of one call, as the profiler in the child's process says."""
        begin = time.perf_counter()
        answer = self._with_inputs("kernel_times", call)
        with self._well_formed():
            return answers.kernel_times(answer, time.perf_counter() - begin)

    def prime_profiler(self) -> float:
        """Start the profiler in the child, so that `timeline` need not; seconds that it took."""
        answer = self._request("prime_profiler")
        with self._well_formed():
            return answers.seconds(answer["seconds"])

    def timeline(self, call: Call) -> tuple[list[KernelTime], list[DeviceEvent]]:
        """As `kernel_times`, and each piece of work with its beginning."""
        begin = time.perf_counter()
        answer = self._with_inputs("kernel_times", call)
        wall = time.perf_counter() - begin
        with self._well_formed():
            return answers.kernel_times(answer, wall), answers.events(answer, wall)

    def nsys_events(self, call: Call, timeout_s: float) -> tuple[list[DeviceEvent], str]:
        """In phase build on a GPU: one call in a process of its own under nsys; in words why nothing is known."""
        begin = time.perf_counter()
        answer = self._with_inputs("nsys_events", call, 2 * timeout_s + 10.0, limit_s=timeout_s)
        with self._well_formed():
            return answers.events(answer, time.perf_counter() - begin), str(answer["skipped"])

    def trace(self, budget_s: float, timeout_s: float) -> tuple[list[dict[str, Any]], str]:
        """The launches that `record` kept, traced: rows of worker/profiled.py, or in words why there are none."""
        answer = self._request("trace", timeout_s=timeout_s, budget_s=budget_s)
        with self._well_formed():
            return answers.rows(answer, "launches"), str(answer["skipped"])

    def write_launches(self, call: Call, timeout_s: float | None = None) -> list[dict[str, Any]]:
        """On a GPU: one call whose launches are written for worker/replay.py; what is known of each without values."""
        answer = self._with_inputs("write_launches", call, timeout_s)
        with self._well_formed():
            return answers.rows(answer, "launches")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
