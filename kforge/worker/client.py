"""The judge's handle to one candidate's process: load, warm, call, arm, time; and its certain end.

Every answer is checked for nonce and form; tensors are read once, from the judge's own buffers, into private copies.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kforge.errors import ChildFailed, UsageError
from kforge.worker.keeper import Keeper
from kforge.worker.limits import Limits
from kforge.worker.protocol import Channel, TensorMeta, decode
from kforge.worker.replies import Armed, Batch, CallReply, LoadReply
from kforge.worker.sandbox import SCRATCH
from kforge.worker.shelf import Shelf, sizes_of
from kforge.worker.tensors import (
    Buffer,
    DeviceMemory,
    Packed,
    fill,
    nbytes_of,
    pack,
    private_copy,
    received,
    view,
)

if TYPE_CHECKING:
    import torch

    from kforge.kernel.candidate import Candidate
    from kforge.task.call import Call

_ENDING_S = 2.0  # from the closing of a process's descriptors to its end

_SPIN_CYCLES = 30_000  # about 0.02 ms
_CALIBRATIONS, _CALIBRATION_CALLS = 3, 100  # a batch's own cost must not weigh in its calls
_WARM_UP_S = 0.06


class Child:
    """One candidate's process. Made by Zygote.fork; use as a context manager: leaving it kills all that is left."""

    def __init__(
        self,
        channel: Channel,
        keeper: Keeper,
        nonce: str,
        device: str,
        limits: Limits,
        memory: DeviceMemory | None,
    ) -> None:
        self._channel, self._keeper = channel, keeper
        self._nonce, self.device, self.limits, self._memory = nonce, device, limits, memory
        self._shelf = Shelf(
            memory,
            lambda buffers, fds: self._request(
                "attach", send_fds=fds, buffers=[b.describe() for b in buffers], fds=len(fds)
            ),
            lambda ids: self._request("detach", ids=list(ids)),
        )
        self._previous: list[Buffer] = []
        self._armed: list[Buffer] = []
        self._hello: dict[str, Any] | None = None
        self._folder = Path()
        self.overhead_ms: float | None = None  # of a timed call, where load made a timer

    def begin(
        self, phase: str, folder: Path, env: Mapping[str, str], readable: Iterable[Path], writable: Iterable[Path]
    ) -> None:
        """Send the start message; the child works on it while the judge goes on."""
        self._folder = folder
        self._channel.send(
            {
                "nonce": self._nonce,
                "device": self.device,
                "phase": phase,
                "folder": str(folder),
                "env": dict(env),
                "readable": [str(p) for p in readable],
                "writable": [str(p) for p in writable],
            }
        )

    @property
    def hello(self) -> dict[str, Any]:
        """in_force (the sandbox's parts), sandbox_s, context_s, pid; waits for the child's start."""
        if self._hello is None:
            self._hello = self._answer(self.limits.call_s)
        return self._hello

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
    ) -> LoadReply:
        """Write the candidate's files, import its module, construct ModelNew(*init), move it, copy `state` by name.

        state: the reference's state_dict and, named in `nonpersistent`, its other buffers. overrides: constants per
        kernel. timer: make the timer now, before candidate code, because `time` will be asked.
        ChildFailed as for every request; a state that does not fit is in the reply, not an error.
        """
        self._clean(candidate)
        begin = time.perf_counter()
        if timer:
            self.overhead_ms = self._calibrate()
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
            **fields,
        )
        for buffers in places.values():
            self._shelf.give(buffers)
        with self._well_formed():
            names = {k: tuple(map(str, answer[k])) for k in ("missing", "unexpected", "mismatched", "redirected")}
        return LoadReply(**names, seconds=time.perf_counter() - begin)

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

    def resources(self, candidate: Candidate, arch: str) -> list[dict[str, Any]]:
        """In phase build: what the compiler says of each declared kernel (kernel/report.py lists the fields).

        ChildFailed as for every request; `error` holds a BuildError with its log, or what is missing.
        """
        self._clean(candidate)
        found = self._request("resources", arch=arch).get("kernels")
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise ChildFailed("protocol", "a malformed list of kernels")
        return found

    def _calibrate(self) -> float:
        """Milliseconds that a timed call costs beside itself in this process (flush, launch, waiting), by our clock.

        Measured in the child before any candidate code is in it: the loop is slower here than in the judge.
        """

        def batch(iterations: int) -> tuple[float, float]:
            begin = time.perf_counter()
            answer = self._request("calibrate", iterations=iterations, cycles=_SPIN_CYCLES)
            return (time.perf_counter() - begin) * 1e3, sum(answer["ms"])

        begin = time.perf_counter()
        while time.perf_counter() - begin < _WARM_UP_S:  # an idle GPU's clocks take tens of milliseconds to rise
            batch(_CALIBRATION_CALLS)
        latency = min(batch(0)[0] for _ in range(5))
        found = []
        for _ in range(_CALIBRATIONS):
            wall, claimed = batch(_CALIBRATION_CALLS)
            found.append((wall - latency - claimed) / _CALIBRATION_CALLS)
        return sorted(found)[len(found) // 2]

    def warm(self, call: Call) -> float:
        """In phase build: call once on stand-ins of the same shapes, layouts and alignment, values not sent.

        Kernels build and do not launch. Returns seconds.
        """
        packed = pack((call.args, call.kwargs))
        answer = self._request("warm", tree=packed.tree, tree_metas=[meta.as_json() for meta in packed.metas])
        with self._well_formed():
            return float(answer["seconds"])

    def call(
        self,
        call: Call,
        *,
        place: str = "any",
        seed: int | None = None,
        state: str = "buffers",
        pattern: int | None = None,
        launch: bool = True,
        timeout_s: float | None = None,
    ) -> CallReply:
        """Call ModelNew on copies of the inputs and bring everything it did back.

        place: "same" fills the previous call's buffers in place (same addresses; shapes must agree), "other" avoids
        them, "any" does not care. seed: torch.manual_seed before the call. state: none | buffers | all. pattern: the
        byte that memory fresh from now on holds (on the CPU), None: as it was. launch: False for a call in which no
        Kernel launches, which shows what is done without them.
        """
        packed = pack((call.args, call.kwargs))
        buffers = self._buffers_for(packed, place)
        self._previous = buffers
        pattern = pattern if self._memory is None else None
        fields = {"seed": seed, "state": state, "pattern": pattern, "launch": launch}
        return self._observed("call", call, packed, buffers, timeout_s, **fields)

    def call_armed(self, call: Call, wrapper: str, timeout_s: float | None = None) -> CallReply:
        """One call through what `arm` made, its inputs refilled in place with values of the same shapes.

        It shows whether a graph really computes: a capture can be empty, or hold on to the values it was made with.
        """
        packed = pack((call.args, call.kwargs))
        if [(b.nbytes, b.side) for b in self._armed] != sizes_of(packed):
            raise UsageError("call_armed needs inputs of the shapes given to arm")
        return self._observed("call_armed", call, packed, self._armed, timeout_s, wrapper=wrapper, state="none")

    def _observed(
        self, op: str, call: Call, packed: Packed, buffers: list[Buffer], timeout_s: float | None, **fields: Any
    ) -> CallReply:
        fields |= self._fill(buffers, packed)
        begin = time.perf_counter()
        answer = self._request(op, timeout_s=timeout_s, **fields)
        wall = time.perf_counter() - begin
        private = [private_copy(buffer) for buffer in buffers]
        after = [view(private[meta.storage], meta) for meta in packed.metas]
        args, kwargs = decode(packed.tree, after.__getitem__)
        inputs = [buffers[meta.storage].id for meta in packed.metas]
        with self._well_formed():
            return self._reply(answer, inputs, type(call)(args, kwargs), wall)

    def arm(
        self,
        call: Call,
        wrappers: Sequence[str] = ("plain",),
        *,
        mutated: Sequence[int] = (),
        warmup: int = 3,
        replay: int = 1,
        timeout_s: float | None = None,
    ) -> Armed:
        """Make ready what `time` and `replay` run.

        wrappers: "plain"; "graph": a CUDA graph over static copies of the inputs; "replay": a graph of `replay` calls
        on the inputs themselves. mutated: numbers of the input tensors to restore before each call, outside the time.
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
            **self._fill(self._armed, packed),
        )
        with self._well_formed():
            problems = {str(name): str(text) for name, text in answer["problems"].items()}
            return Armed(float(answer["seconds"]), float(answer["once_s"]), problems)

    def time(
        self, iterations: int, flush: bool = True, wrapper: str = "plain", timeout_s: float | None = None
    ) -> Batch:
        """Time `iterations` calls in the child, under the judge's clock."""
        begin = time.perf_counter()
        answer = self._request("time", timeout_s=timeout_s, iterations=iterations, flush=flush, wrapper=wrapper)
        wall = time.perf_counter() - begin
        ms = answer.get("ms")
        if not isinstance(ms, list) or len(ms) != iterations or not all(type(t) is float and t >= 0 for t in ms):
            raise ChildFailed("protocol", "malformed timings")
        return Batch(tuple(ms), wall)

    def replay(self, repeats: int, wrapper: str = "replay", timeout_s: float | None = None) -> float:
        """Seconds by the judge's clock for `repeats` calls of a wrapper back to back, no flush between."""
        begin = time.perf_counter()
        self._request("replay", timeout_s=timeout_s, repeats=repeats, wrapper=wrapper)
        return time.perf_counter() - begin

    # -- tensors ---------------------------------------------------------------------------------------------------

    def _buffers_for(self, packed: Packed, place: str) -> list[Buffer]:
        if place == "same":
            if [(b.nbytes, b.side) for b in self._previous] != sizes_of(packed):
                raise UsageError("place='same' needs a call of the same shapes just before")
            return self._previous
        if place == "other":
            buffers = self._shelf.take_for(packed)
            self._shelf.give(self._previous)
            return buffers
        self._shelf.give(self._previous)
        return self._shelf.take_for(packed)

    def _fill(self, buffers: list[Buffer], packed: Packed, key: str = "tree") -> dict[str, Any]:
        """Write the sources into the buffers; returns the tree's fields of a request."""
        fill(buffers, packed)
        if self._memory is not None:
            _synchronise(self.device)
        metas = [replace(meta, storage=buffers[meta.storage].id).as_json() for meta in packed.metas]
        return {key: packed.tree, f"{key}_metas": metas, "refresh": [b.id for b in buffers if b.kind == "staged"]}

    def _reply(self, answer: dict[str, Any], inputs: Sequence[int], after: Call, wall: float) -> CallReply:
        """Check the child's descriptions, fetch the values they announce, put the reply together."""
        metas = [TensorMeta.parse(meta) for meta in answer["metas"]]
        sizes = [nbytes_of(meta) for meta in metas]
        if sum(sizes) > self.limits.output_bytes:
            raise ChildFailed("protocol", f"outputs of {sum(sizes)} bytes; the limit is {self.limits.output_bytes}")
        side = "cpu" if self._memory is None else "cuda"
        sides = [side if meta.device != "cpu" else "cpu" for meta in metas]
        buffers = self._shelf.take(list(zip(sizes, sides, strict=True)))
        if buffers:
            self._request("fetch", copies=[[i, b.id] for i, b in enumerate(buffers)])
        for buffer in buffers:
            buffer.refresh()
        tensors = [received(buffer, meta) for buffer, meta in zip(buffers, metas, strict=True)]
        if self._memory is not None:
            _synchronise(self.device)
        self._shelf.give(buffers)
        used: list[int] = []

        def take(index: int) -> Any:
            used.append(index)
            return tensors[index]

        outputs = decode(answer["tree"], take)
        count = len(used)
        state = decode(answer["state"], take)
        if used != list(range(len(tensors))) or not isinstance(state, dict):
            raise ChildFailed("protocol", "leaves of the answer that do not add up")
        home = {storage: number for number, storage in reversed(list(enumerate(inputs)))}
        return CallReply(
            outputs=outputs,
            output_metas=tuple(metas[:count]),
            aliases={i: home[meta.storage] for i, meta in enumerate(metas[:count]) if meta.storage in home},
            inputs_after=after,
            state_after=state,
            launches={str(name): int(n) for name, n in answer["launches"].items()},
            ops={str(name): int(n) for name, n in answer["ops"].items()},
            threads=(int(answer["threads_before"]), int(answer["threads_after"])),
            peak_bytes=None if answer["peak_bytes"] is None else int(answer["peak_bytes"]),
            rng_advanced=bool(answer["rng_advanced"]),
            seconds=float(answer["seconds"]),
            wall_s=wall,
        )

    # -- asking and ending -----------------------------------------------------------------------------------------

    def _request(
        self, op: str, send_fds: Sequence[int] = (), timeout_s: float | None = None, **fields: Any
    ) -> dict[str, Any]:
        if self.end is not None:
            raise ChildFailed("crashed", "this child has ended", self.log())
        _ = self.hello
        try:
            self._channel.send({"op": op, **fields}, send_fds)
        except ChildFailed as failure:
            raise self._ended(failure) from failure
        return self._answer(self.limits.call_s if timeout_s is None else timeout_s)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        try:
            answer = self._channel.receive(timeout_s)
            self._channel.drop_fds()
            if answer.get("nonce") != self._nonce:
                raise ChildFailed("protocol", "an answer without the nonce")
        except ChildFailed as failure:
            if failure.kind == "timed_out":
                failure = ChildFailed("timed_out", f"no answer within {timeout_s:g} s")
            raise self._ended(failure) from failure
        if answer.get("ok") is True:
            return answer
        error = answer.get("error")
        details = {str(k): str(v) for k, v in error.items()} if isinstance(error, dict) else {}
        details = details and {"message": "", "hint": "", **details}
        kind, log = ("crashed" if answer.get("kind") == "crashed" else "raised"), self.log()
        if kind == "crashed":  # its CUDA context is gone: nothing more can be asked of it
            self.close()
        raise ChildFailed(kind, str(answer.get("text", "")), log, details)

    @contextmanager
    def _well_formed(self) -> Iterator[None]:
        """Reading an answer: what it lacks or says in a wrong form is a protocol failure, and ends the child."""
        try:
            try:
                yield
            except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise ChildFailed("protocol", f"a malformed answer: {error!r}") from error
        except ChildFailed as failure:
            if failure.kind != "protocol" or self.end is not None:
                raise
            raise self._ended(failure) from failure

    @property
    def end(self) -> dict[str, Any] | None:
        """None while the child lives, then exit, signal, reason, log, peak_bytes, killed."""
        return self._keeper.end

    def _ended(self, failure: ChildFailed) -> ChildFailed:
        """End the child after a failure of the line; the failure with how it ended."""
        self.close(_ENDING_S if failure.kind == "crashed" else 0.0)
        return self._keeper.explain(failure)

    def log(self) -> str:
        """The tail of what the candidate has printed so far. For reading only."""
        return self._keeper.log()

    def close(self, patience_s: float = 0.0) -> dict[str, Any]:
        """Kill every process of the child and free its buffers; returns `end`.

        patience_s: how long a child that seems to be ending may take to do so by itself.
        """
        end = self._keeper.close(patience_s)
        self._channel.close()
        self._shelf.close()
        self._previous, self._armed = [], []
        return end

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _synchronise(device: str) -> None:
    import torch

    torch.cuda.synchronize(device)
