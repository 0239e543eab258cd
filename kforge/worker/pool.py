"""The judge's handle to the warm parent, restarted when it dies, and the lock that gives one timing a GPU alone."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import kforge
from kforge.errors import Interrupted, KforgeError
from kforge.worker.client import Child
from kforge.worker.keeper import Keeper
from kforge.worker.limits import Limits
from kforge.worker.protocol import Channel
from kforge.worker.sandbox import SCRATCH, own_folder, package_folders
from kforge.worker.tensors import DeviceMemory

_ALLOWED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "CC", "CXX", "CPATH", "LIBRARY_PATH",
    "KFORGE_CACHE", "XDG_CACHE_HOME", "KFORGE_NATIVE",
    "KFORGE_CXX", "KFORGE_EMULATOR", "KFORGE_EMULATOR_SECONDS", "KFORGE_EMULATOR_THREADS", "KFORGE_EMULATOR_STRICT",
)  # fmt: skip
_START_S = 120.0
# One queue for copies instead of eight: a context is there in 0.15 s instead of 0.18 s on an H200, and gone in 0.05 s
# instead of 0.07 s. Launches keep theirs.
ONE_COPY = {"CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}


class Zygote:
    """A warm parent and the children it forks. Use as a context manager, or start() and close()."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._memory: dict[str, DeviceMemory] = {}
        self._asking = threading.Lock()  # one request at a time, or two threads would read each other's answers
        self._children: weakref.WeakSet[Child] = weakref.WeakSet()
        self._registry = threading.Lock()  # of the children
        self._errors: IO[bytes] | None = None
        self.aborted = False
        self.restarts = -1
        self.hello: dict[str, Any] = {}

    def start(self) -> Zygote:
        """Exec the parent and return at once; the first `fork` waits until it is ready (1.5 to 6 s)."""
        self._check()
        if self._process is not None and self._process.poll() is None:
            return self
        self._drop()
        # a file and no pipe: a supervisor that outlives the parent would hold a pipe open
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        mine, theirs = socket.socketpair()
        own = Path(kforge.__file__).resolve().parent.parent
        environment = {name: os.environ[name] for name in _ALLOWED if name in os.environ}
        environment |= {
            "OPENBLAS_NUM_THREADS": "1",
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",  # its short cut passes by the children's M_PERTURB
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "PYTHONPATH": os.pathsep.join(map(str, [own, *package_folders()])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUTF8": "1",  # sources are UTF-8 whatever the locale says
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kforge.worker.zygote", str(theirs.fileno())],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            cwd="/",
        )
        theirs.close()
        self._channel = Channel(mine, 1 << 20)
        self.hello = {}
        self.restarts += 1
        if self.aborted:  # while it was started: `abort` has not seen it
            self._drop()
            self._check()
        return self

    def wait_ready(self) -> dict[str, Any]:
        """The parent's own facts (pid, threads ...), waiting for its start. KforgeError if it fails."""
        self.start()
        assert self._channel is not None and self._process is not None
        if not self.hello:
            try:
                self.hello = self._channel.receive(_START_S)
            except KforgeError as error:
                assert self._errors is not None
                self._errors.seek(0)
                text = self._errors.read().decode(errors="replace")[-2000:]
                self._drop()
                self._check()  # it may have been ended by `abort`
                raise KforgeError(f"the warm parent did not start: {text}") from error
        return self.hello

    def facts(self) -> dict[str, Any]:
        """The same facts, read now."""
        with self._asking:
            self.wait_ready()
            assert self._channel is not None
            self._channel.send({"op": "facts"})
            return self._channel.receive(_START_S)

    def fork(
        self,
        folder: Path,
        device: str = "cpu",
        phase: str = "run",
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        guard: Path | None = None,
        timer: bool = False,
    ) -> Child:
        """Fork a child that sandboxes itself to `folder` and makes its CUDA context; returns before it is ready.

        device: "cpu" or "cuda:N". phase: "build" or "run". `readable` and `writable` name paths beyond the folder.
        guard: on a GPU, the library of the allocator with guard bands (guard.py), where answers are to be judged.
        timer: it makes its timer at once, since it will be loaded with one.
        A dead parent is started anew.
        """
        if phase not in ("build", "run"):
            raise ValueError(f"unknown phase {phase!r}; available: build, run")
        limits = limits or Limits()
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        own_folder(folder, SCRATCH)
        pairs = control, their_control, line, their_line = (*socket.socketpair(), *socket.socketpair())
        try:
            with self._asking:
                pid = self._request_fork(limits, [their_control.fileno(), their_line.fileno()])
        except BaseException:
            for end in pairs:
                end.close()
            raise
        their_control.close()
        their_line.close()
        nonce = secrets.token_hex(16)
        line.settimeout(limits.call_s)  # for sending: a hostile child may stop reading
        keeper = Keeper(control, pid, limits)
        child = Child(Channel(line, limits.reply_bytes), keeper, nonce, device, limits, self.memory(device))
        with self._registry:
            self._children.add(child)
        try:
            self._check()
            given = (ONE_COPY if device != "cpu" else {}) | dict(env or {})
            child.begin(phase, folder, _child_environment(folder, given), readable, writable, guard, timer)
        except BaseException:
            child.close()
            raise
        return child

    def _request_fork(self, limits: Limits, fds: list[int]) -> int:
        for attempt in (1, 2):
            self.wait_ready()
            assert self._channel is not None
            try:
                self._channel.send({"op": "fork", "limits": asdict(limits)}, fds)
                return int(self._channel.receive(_START_S)["pid"])
            except KforgeError:
                if attempt == 2:
                    raise
                self._drop()
        raise AssertionError("unreachable")

    def abort(self) -> None:
        """From any thread: every child ends now, with all it started, and so does the parent, for good.

        The thread that waits for an answer gets ChildFailed, or Interrupted where it asks for another child.
        """
        self.aborted = True
        with self._registry:
            children = list(self._children)
        for child in children:
            child.kill()
        process = self._process
        if process is not None:
            process.kill()

    def _check(self) -> None:
        if self.aborted:
            raise Interrupted("stopped")

    def memory(self, device: str) -> DeviceMemory | None:
        """The judge's allocations on a GPU; None for the CPU."""
        if device == "cpu":
            return None
        if device not in self._memory:
            self._memory[device] = DeviceMemory(device)
        return self._memory[device]

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        self._process = self._channel = None

    def close(self) -> None:
        """End every child that is still there, the parent, and free the judge's shared device memory.

        A child that nobody closed would live on under its supervisor until `life_s`.
        """
        with self._registry:
            children = list(self._children)
        for child in children:
            child.close()
        self._drop()
        for memory in self._memory.values():
            memory.close()
        self._memory = {}

    def __enter__(self) -> Zygote:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _child_environment(folder: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Home, temporary files and every cache inside the candidate's folder, so that *run* finds what *build* left."""
    cache = own_folder(folder, "cache")
    scratch = str(folder / SCRATCH)
    return {
        "HOME": scratch,
        "TMPDIR": scratch,
        "XDG_CACHE_HOME": str(cache),
        "KFORGE_CACHE": str(cache / "kforge"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCH_EXTENSIONS_DIR": str(cache / "torch_extensions"),
        "CUPY_CACHE_DIR": str(cache / "cupy"),
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        **extra,
    }


@contextmanager
def gpu_lock(device: str, shared: bool = False) -> Iterator[None]:
    """Hold a GPU alone among kforge processes of this machine; waits for its turn. Nothing to do for the CPU.

    shared: hold it together with others that judge answers, and never while one of them times. Not to be nested.
    """
    if device == "cpu":
        yield
        return
    index = device.partition(":")[2] or "0"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    physical = visible[int(index)] if int(index) < len(visible) and visible[int(index)] else index
    path = Path(tempfile.gettempdir()) / f"kforge-gpu-{physical}-{os.getuid()}.lock"
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
