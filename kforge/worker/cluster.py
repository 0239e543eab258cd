"""Workers on several machines through Ray (extra `distributed`): one actor a GPU, each with a `kforge worker` inside.

The actor only passes lines on, so a Ray worker is the same worker as any other: protocol, versions, isolation.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from kforge.errors import KforgeError, MissingError, WorkerLost
from kforge.worker import wire
from kforge.worker.remote import Deliver, parse_answer, parse_failure

_POLL_S = 2.0


class Host:
    """Inside the actor: the worker's process on that machine, its lines in a queue."""

    def __init__(self, arguments: list[str]) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-m", "kforge", "worker", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        self._fault = ""
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in wire.lines(self.process.stdout):
            if len(line) > wire.LINE_BYTES:
                self._fault = f"sent a line of over {wire.LINE_BYTES} bytes"
                self.process.kill()
                break
            self.lines.put(line.decode(errors="replace"))
        self.process.wait()
        self.lines.put(None)

    def send(self, line: str) -> None:
        """Pass one line to the worker."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return

    def receive(self) -> tuple[list[str], str | None]:
        """What the worker said since the last call, waiting up to 2 s; then how it ended, None while it lives."""
        found: list[str] = []
        try:
            line = self.lines.get(timeout=_POLL_S)
            while line is not None:
                found.append(line)
                line = self.lines.get_nowait()
        except queue.Empty:
            return found, None
        self.errors.seek(0)
        tail = [self._fault] if self._fault else self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        return found, f"ended with exit code {self.process.returncode}" + (f": {tail[0][-300:]}" if tail else "")

    def stop(self) -> None:
        """End the worker."""
        self.process.terminate()
        self.process.wait(10)


class RayWorker:
    """A worker in an actor; `gpus` (1 or 0) is what Ray reserves for it, on whichever machine has it free."""

    def __init__(self, name: str, gpus: int, arch: str | None = None) -> None:
        self.name, self.gpus = name, gpus
        self._arguments = ["--device", "cuda:0" if gpus else "cpu", *(["--arch", arch] if arch else [])]
        self._actor: Any = None
        self._words = ""
        self.failure: KforgeError | None = None

    def start(self, deliver: Deliver) -> None:
        """Ask Ray for the actor; its start is waited for by whoever waits for its first answer."""
        ray = _ray()
        self._words = ""
        host = ray.remote(Host).options(num_gpus=self.gpus, num_cpus=1, max_concurrency=4)
        self._actor = host.remote(self._arguments)
        threading.Thread(target=self._listen, args=(ray, self._actor, deliver), daemon=True).start()

    def _listen(self, ray: Any, actor: Any, deliver: Deliver) -> None:
        ended: str | None = None
        while ended is None:
            try:
                lines, ended = ray.get(actor.receive.remote())
            except ray.exceptions.RayError as error:
                lines, ended = [], f"is lost: {str(error).strip().splitlines()[0]}"
            for line in lines:
                message = parse_answer(line)
                if message is not None:
                    deliver(self, message)
                else:
                    self.failure = parse_failure(line)
        self._words = ended
        deliver(self, None)

    def send(self, message: Mapping[str, Any]) -> None:
        """Pass one message on, in order."""
        self._actor.send.remote(wire.encode(message).decode())

    def last_words(self) -> str:
        """How it ended."""
        return self._words

    def close(self, at_once: bool = False) -> None:
        """End the worker and give its GPU back to Ray."""
        if self._actor is None:
            return
        ray = _ray()
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):  # if it is gone, that is what was asked for
            ray.get(self._actor.stop.remote(), timeout=15)
        ray.kill(self._actor)
        self._actor = None


def connect(address: str, count: int | None = None, arch: str | None = None) -> list[RayWorker]:
    """One worker for each GPU of the cluster at `address` ("auto": the running one, "local": one made here).

    A cluster without GPUs gives `count` emulator workers (default: half its CPUs). MissingError without Ray, WorkerLost
    where the cluster does not answer.
    """
    ray = _ray()
    if not ray.is_initialized():
        where = {} if address == "local" else {"address": address}
        try:
            ray.init(
                **where, log_to_driver=False, logging_level="ERROR", include_dashboard=False if not where else None
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise WorkerLost(f"no Ray cluster at {address}: {error}", "start one with `ray start --head`") from error
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    if gpus:
        return [RayWorker(f"ray gpu {n}", 1, arch) for n in range(min(count or gpus, gpus))]
    cpus = max(1, int(resources.get("CPU", 1)))
    return [RayWorker(f"ray cpu {n}", 0, arch) for n in range(count or max(1, cpus // 2))]


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingError(
            "Ray is not installed", "install the extra: pip install 'kforge-cuda[distributed]'"
        ) from error
    return ray
