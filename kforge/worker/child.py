"""What runs in the candidate's process: walls first, then a loop that answers the judge's requests.

It shares its process with the candidate, so nothing it says is proof; the judge checks values on its own copies and
times on its own clock.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from kforge.errors import BuildError, ChildFailed, EmulatorError, KforgeError
from kforge.worker import compiled, inspection, poison, prebuilt, probing, profiled, sandbox
from kforge.worker.construct import copy_state, import_module
from kforge.worker.guard import Guard
from kforge.worker.observe import Observer, gradients_enabled, storage_number, threads
from kforge.worker.protocol import Channel, TensorMeta, decode, encode
from kforge.worker.tensors import Buffer, attach, describe, view
from kforge.worker.timed import Timing
from kforge.worker.timer import make_timer

_TEXT_LIMIT = 16 << 10
_CLOCKED = ("calibrate", "time", "replay")  # the judge's clock runs over these, and the next one comes at once
_AWAKE_S = 0.002  # so long it is waited for without sleep, as the judge waits for the answer
_START_LIMIT = 64 << 20  # the judge's own messages (a large tree of inputs) are trusted


def serve(sock: socket.socket, log_fd: int) -> NoReturn:
    """The whole life of a child: read the start message, put the walls up, answer until the line is closed."""
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(sock, _START_LIMIT)
    start = channel.receive()
    _environment(start)
    begin = time.perf_counter()
    in_force = sandbox.apply(
        sandbox.Policy(
            start["phase"],
            Path(start["folder"]),
            tuple(map(Path, start["readable"])),
            tuple(map(Path, start["writable"])),
        )
    )
    sandbox_s = time.perf_counter() - begin
    server = Server(channel, start["nonce"], start["device"], start["phase"], Path(start["folder"]), start["guard"])
    server.run({"in_force": in_force, "sandbox_s": sandbox_s}, start["timer"])


def _environment(start: dict[str, Any]) -> None:
    """Caches and temporary files into the candidate's folder; the zygote's settings undone; fresh seeds."""
    for name in ("OPENBLAS_NUM_THREADS", "GLIBC_TUNABLES"):  # of programs it starts; this process keeps what it has
        os.environ.pop(name, None)
    os.environ.update(start["env"])
    tempfile.tempdir = None  # found anew in TMPDIR
    os.chdir(start["folder"])
    random.seed()
    if "numpy" in sys.modules:  # torch's generators are seeded in load
        sys.modules["numpy"].random.seed()


class Server:
    """Handlers by name; each takes a request and returns the fields of the answer."""

    def __init__(self, channel: Channel, nonce: str, device: str, phase: str, folder: Path, guard: str) -> None:
        self.channel, self.nonce, self.device, self.phase, self.folder = channel, nonce, device, phase, folder
        self.buffers: dict[int, Buffer] = {}
        self.model: Any = None
        self.gradients: dict[str, Any] | None = None  # of a pair's task
        self.loaded: tuple[str, Any] = ("", ((), {}))  # the module's file and the constructor's arguments
        self.precision = "highest"
        self.poison = "absent: torch's own allocator"
        self.guard: Guard | None = None
        self.guard_library = guard
        self.overrides: dict[str, Any] = {}
        self.kept: Any = None  # the emulator's launches, once `record` was asked
        self.answers: list[Any] = []  # tensors of the last call that the judge may fetch
        self.timing = Timing(self)
        self.redirected: list[str] = []
        self.handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "attach": self.attach,
            "detach": self.detach,
            "resources": lambda request: compiled.resources(self, request),
            "figures": lambda request: compiled.figures(self, request),
            "made": lambda request: compiled.made(self, request),
            "load": self.load,
            "warm": self.warm,
            "call": self.call,
            "call_armed": self.call_armed,
            "fetch": self.fetch,
            "arm": self.timing.arm,
            "calibrate": self.timing.calibrate,
            "time": self.timing.time,
            "replay": self.timing.replay,
            "record": lambda request: inspection.record(self, request),
            "examine": lambda request: inspection.examine(self, request),
            "sanitize": lambda request: inspection.sanitize(self, request),
            "kernel_times": lambda request: inspection.kernel_times(self, request),
            "prime_profiler": lambda request: inspection.prime_profiler(self, request),
            "nsys_events": lambda request: inspection.nsys_events(self, request),
            "trace": lambda request: profiled.trace(self, request),
            "write_launches": lambda request: profiled.write_launches(self, request),
            "probe": lambda request: probing.probe(self, request),
        }

    def run(self, hello: dict[str, Any], timer: bool) -> NoReturn:
        self.answer(lambda: {**hello, **self.warm_up(timer)})
        awake_s = 0.0
        while True:
            try:
                request = self.channel.receive(awake_s=awake_s)
            except ChildFailed:  # the judge closed the line
                os._exit(0)
            self.answer(lambda: self.handlers[request["op"]](request))  # noqa: B023 - called at once
            awake_s = _AWAKE_S if request["op"] in _CLOCKED and self.device != "cpu" else 0.0

    def answer(self, handler: Callable[[], dict[str, Any]]) -> None:
        """Run a handler and send its answer; whatever the candidate's code raises becomes a message."""
        try:
            message = {"ok": True, **handler()}
        except BaseException as error:  # candidate code may raise anything, SystemExit included
            message = {"ok": False, **self.failure(error)}
        sys.stdout.flush()
        sys.stderr.flush()
        self.channel.send({"nonce": self.nonce, **message})

    def failure(self, error: BaseException) -> dict[str, Any]:
        """kind raised, or crashed when the CUDA context no longer answers; the traceback without frames of ours."""
        kind = error.kind if isinstance(error, ChildFailed) else "raised"
        if self.device != "cpu" and not _device_alive():
            kind = "crashed"
        frames = traceback.extract_tb(error.__traceback__)
        own = str(Path(__file__).parent)
        shown = [f for f in frames if not f.filename.startswith(own)] or list(frames)
        text = "".join(traceback.format_list(shown)) + "".join(traceback.format_exception_only(error))
        detail = {}
        if isinstance(error, KforgeError):
            detail = {"kind": error.kind, "message": error.message, "hint": error.hint}
        elif self.device == "cpu" and type(error) is RuntimeError and "active drivers" in str(error):  # Triton's words
            needed = "Triton's kernels run on a GPU alone"
            hint = "judge it on a machine with a GPU"
            detail = {"kind": EmulatorError.kind, "message": needed, "hint": hint, "gpu_only": needed}
        if isinstance(error, BuildError):
            detail["log"] = error.log[-_TEXT_LIMIT:]
        if isinstance(error, EmulatorError):
            detail["gpu_only"] = error.gpu_only
        return {"kind": kind, "text": text[-_TEXT_LIMIT:], "error": detail}

    def warm_up(self, timer: bool) -> dict[str, Any]:
        """Before any candidate code: the context on a GPU, and the timer; on the CPU what fresh memory holds."""
        begin = before = time.perf_counter()
        took: dict[str, float] = {}

        def done(part: str) -> None:
            nonlocal before
            took[part], before = time.perf_counter() - before, time.perf_counter()

        if self.device == "cpu":
            self.poison = poison.set_pattern(poison.PATTERNS[0])
        else:
            import torch

            if self.guard_library:  # before torch allocates anything
                self.guard = Guard(Path(self.guard_library))
                self.poison = "in force: allocations between guard bands, holding one of two patterns"
                done("guard")
            torch.cuda.set_device(self.device)
            done("context")
            torch.zeros(1, device=self.device)
            torch.cuda.synchronize()
            done("first kernel")
            if timer:
                make_timer(self.device)
                done("timer")
        whole = time.perf_counter() - begin
        return {"context_s": whole, "context_parts_s": took, "pid": os.getpid(), "poison": self.poison}

    # -- memory ----------------------------------------------------------------------------------------------------

    def attach(self, request: dict[str, Any]) -> dict[str, Any]:
        fds = iter(self.channel.take_fds(request["fds"]))
        for description in request["buffers"]:
            self.buffers[description["id"]] = attach(description, lambda: next(fds), self.device)
        return {}

    def detach(self, request: dict[str, Any]) -> dict[str, Any]:
        for number in request["ids"]:
            self.buffers.pop(number).release()
        return {}

    def tree(self, request: dict[str, Any], key: str = "tree") -> tuple[Any, list[Any]]:
        """A tree of the judge's with its tensors as views over shared buffers; also the leaves in order."""
        metas = [TensorMeta.parse(meta) for meta in request[f"{key}_metas"]]
        leaves = [view(self.buffers[meta.storage], meta) for meta in metas]
        return decode(request[key], leaves.__getitem__), leaves

    def inputs(self, request: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
        """Positional and keyword inputs of a call, as the judge has just written them, and their tensors in order."""
        for number in request["refresh"]:
            self.buffers[number].refresh()
        (args, kwargs), leaves = self.tree(request)
        return args, kwargs, leaves

    # -- the candidate ---------------------------------------------------------------------------------------------

    @contextmanager
    def around(self) -> Iterator[None]:
        """The conditions under which candidate code runs: no_grad, precision, overrides, redirected devices."""
        import torch

        from kforge.kernel import hooks
        from kforge.kernel.build.cache import read_only_cache
        from kforge.task.device import redirect_cuda
        from kforge.task.precision import Precision, matmul_precision

        with (
            torch.no_grad(),
            matmul_precision(Precision(self.precision)),
            hooks.overrides(self.overrides) if self.overrides else nullcontext(),
            read_only_cache() if self.phase == "run" else nullcontext(),
            redirect_cuda(self.device, self.redirected),
        ):
            yield

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the module, construct ModelNew, move it, copy the state by name; with `again` the last alone."""
        import torch

        from kforge.task.backward import Gradients, differentiating
        from kforge.task.device import move_module

        torch.seed()
        self.precision, self.overrides = request["precision"], request["overrides"]
        for buffer in self.buffers.values():  # both trees' buffers, whichever the request names
            buffer.refresh()
        (args, kwargs), _ = self.tree(request, "init")
        state, _ = self.tree(request, "state")
        if request["again"]:
            with self.around():
                answer = copy_state(self.model, state, set(request["nonpersistent"]))
            return {**answer, "redirected": self.redirected, "threads": threads()}
        with self.around():
            path = self.folder / request["module"]
            prebuilt.prepare(self.phase, self.folder / "cache", path.read_text())
            module = import_module(path)
            if not hasattr(module, "ModelNew"):
                raise KforgeError(f"{request['module']} defines no ModelNew")
            model = module.ModelNew(*args, **kwargs)
            if not isinstance(model, torch.nn.Module):
                raise KforgeError("ModelNew is not a torch.nn.Module")
            model = move_module(model, self.device).train(request["training"])
            answer = copy_state(model, state, set(request["nonpersistent"]))
            if request["gradients"]:
                model = differentiating(model, Gradients.read(request["gradients"]))
        self.model, self.gradients = model, request["gradients"]
        self.loaded = request["module"], _copied((args, kwargs))
        return {**answer, "redirected": self.redirected, "threads": threads()}

    def warm(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call on stand-in tensors made here while kernels build and do not launch."""
        import torch

        from kforge.kernel import hooks

        metas = [TensorMeta.parse(meta) for meta in request["tree_metas"]]
        storages: dict[int, Buffer] = {}
        for meta in metas:
            if meta.storage not in storages:
                device = self.device if meta.device != "cpu" else "cpu"
                fresh = torch.zeros(max(meta.storage_bytes, 1), dtype=torch.uint8, device=device)
                storages[meta.storage] = Buffer(meta.storage, meta.storage_bytes, "private", fresh)
        leaves = [view(storages[meta.storage], meta) for meta in metas]
        args, kwargs = decode(request["tree"], leaves.__getitem__)
        begin = time.perf_counter()
        with self.around(), hooks.build_only():
            self.model(*args, **kwargs)
        return {"seconds": time.perf_counter() - begin}

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """One observed call; its outputs and state stay here until the judge fetches copies."""
        from kforge.kernel import hooks, weights
        from kforge.kernel.emulator.mode import thread_order

        args, kwargs, leaves = self.inputs(request)
        if request["pattern"] is not None:
            self.set_pattern(request["pattern"])
        silent = nullcontext() if request["launch"] else hooks.build_only()
        ordered = thread_order(request["order"]) if request["order"] else nullcontext()
        grads = gradients_enabled(self.model) if request["grad"] else nullcontext()
        derived = weights.anew() if request["anew"] else nullcontext()
        watched = Observer(self.device, request["seed"], self.guard)
        with self.around(), grads, derived, silent, ordered, watched as seen:
            outputs = self.model(*args, **kwargs)
        return self.report(request, outputs, leaves, seen)

    def set_pattern(self, pattern: int) -> None:
        """What fresh memory holds: of this process on the CPU, of the device where guarded; else nothing changes."""
        if self.device == "cpu":
            poison.set_pattern(pattern)
        elif self.guard is not None:
            self.guard.set_pattern(pattern)

    def call_armed(self, request: dict[str, Any]) -> dict[str, Any]:
        """As `call`, through a wrapper that `arm` made: its inputs have been refilled in place."""
        _, _, leaves = self.inputs(request)
        wrapper, armed = request["wrapper"], self.timing.armed
        if wrapper not in armed:
            raise KforgeError(f"no wrapper {wrapper!r}; armed: {', '.join(armed)}")
        with self.around(), Observer(self.device, None) as seen:
            outputs = armed[wrapper]()
        return self.report(request, outputs, leaves, seen)

    def report(self, request: dict[str, Any], outputs: Any, leaves: list[Any], seen: Observer) -> dict[str, Any]:
        """The answer to a call: descriptions of what it left, the tensors themselves kept for `fetch`."""
        for number in request["refresh"]:
            self.buffers[number].publish()
        self.answers = []
        metas: list[dict[str, Any]] = []
        inputs = {leaf.untyped_storage().data_ptr(): self.number(leaf) for leaf in leaves if leaf.numel()}

        def leaf(tensor: Any) -> int:
            self.answers.append(tensor)
            storage = storage_number(tensor, inputs)
            metas.append(describe(tensor, storage).as_json())
            return len(metas) - 1

        tree = encode(outputs, leaf, strict=False)
        state = encode(self.state(request["state"]), leaf)
        return {"tree": tree, "state": state, "metas": metas, **seen.as_json()}

    def number(self, leaf: Any) -> int:
        pointer = leaf.untyped_storage().data_ptr()
        return next(n for n, buffer in self.buffers.items() if buffer.bytes.data_ptr() == pointer)

    def state(self, which: str) -> dict[str, Any]:
        """which: "none", "buffers" (non-persistent ones too) or "all" (parameters besides)."""
        named = dict(self.model.named_buffers(remove_duplicate=False)) if which != "none" else {}
        if which == "all":
            named |= dict(self.model.named_parameters(remove_duplicate=False))
        return named

    def fetch(self, request: dict[str, Any]) -> dict[str, Any]:
        """Copy tensors of the last call into the judge's buffers, as dense elements."""
        import torch

        with torch.no_grad():
            for index, number in request["copies"]:
                tensor, buffer = self.answers[index].detach(), self.buffers[number]
                size = tensor.numel() * tensor.element_size()
                flat = buffer.bytes[:size].view(tensor.dtype).view(tensor.shape)
                flat.copy_(tensor)
                buffer.publish()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return {}


def _copied(tree: Any) -> Any:
    """The tree with tensors of its own: the judge's buffers are used again."""
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), tree)


def _device_alive() -> bool:
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
