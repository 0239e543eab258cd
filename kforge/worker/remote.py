"""One worker as its client sees it: a process started by any command, lines to its stdin, lines from its stdout.

The command may be local, `ssh box kforge worker`, `srun -p gpu kforge worker`, a container: nothing else is assumed.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Protocol

from kforge.errors import KforgeError, ProtocolError, UsageError, WorkerLost
from kforge.worker import wire

_PATIENCE_S = 10.0  # for a worker to end by itself
Deliver = Callable[["Worker", "dict[str, Any] | None"], None]


class Worker(Protocol):
    """What a fleet needs of a worker. `deliver(self, message)` is called from a thread; None: it has ended."""

    name: str
    failure: KforgeError | None  # with which its program ended, where it said so

    def start(self, deliver: Deliver) -> None: ...

    def send(self, message: Mapping[str, Any]) -> None: ...

    def last_words(self) -> str: ...

    def close(self, at_once: bool = False) -> None: ...


class RemoteWorker:
    """A worker behind a command. `start` may be called again after its end."""

    def __init__(self, command: Sequence[str], name: str = "") -> None:
        self.command = list(command)
        self.name = name or shlex.join(self.command)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._fault = ""
        self.failure: KforgeError | None = None

    @staticmethod
    def local(device: str, name: str = "", arch: str | None = None) -> RemoteWorker:
        """A worker of this machine for "auto", "cpu" or "cuda:N"."""
        more = ["--arch", arch] if arch else []
        return RemoteWorker([sys.executable, "-m", "kforge", "worker", "--device", device, *more], name or device)

    @staticmethod
    def from_text(text: str) -> RemoteWorker:
        """A worker from a command line as a user types it. UsageError where it cannot be read."""
        try:
            command = shlex.split(text)
        except ValueError as error:
            raise UsageError(
                f"--worker {text!r}: {error}", 'write for example --worker "ssh box kforge worker"'
            ) from error
        if not command:
            raise UsageError("--worker is empty", 'write for example --worker "ssh box kforge worker"')
        return RemoteWorker(command, text)

    def start(self, deliver: Deliver) -> None:
        """Start the process; WorkerLost when there is no such program."""
        self._fault, self.failure = "", None
        self._drop_errors()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError as error:
            raise WorkerLost(
                f"worker {self.name}: {self.command[0]}: {error.strerror}", "is the command right?"
            ) from error
        threading.Thread(target=self._read, args=(self._process, deliver), daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes], deliver: Deliver) -> None:
        assert process.stdout is not None
        spoken = False
        for line in wire.lines(process.stdout):
            if len(line) > wire.LINE_BYTES:
                self._fault = f"sent a line of over {wire.LINE_BYTES} bytes"
                self.failure = ProtocolError(f"worker {self.name} {self._fault}", "is it a kforge worker?")
                process.terminate()
                break
            message = parse_answer(line)
            if message is not None:
                spoken = True
                deliver(self, message)
            elif spoken or line.startswith(b"{"):  # before its first answer a shell may greet; after it only answers
                self.failure = parse_failure(line)
                self._fault = self.failure.message if self.failure else f"said {line[:80]!r}, which is no answer"
                process.terminate()
                break
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:  # it can say nothing any more
            process.kill()
            process.wait()
        deliver(self, None)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line. A worker that has ended is told by `deliver`, not here."""
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(wire.encode(message))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # ValueError: closed by us
            return

    def last_words(self) -> str:
        """Why it ended, as far as can be told: its exit code and the last line it wrote to stderr."""
        code = self._process.poll() if self._process else None
        text = ""
        if self._errors is not None:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            text = next((line for line in reversed(lines) if line.strip()), "")[-300:]
        ending = "" if code is None else f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return ": ".join(filter(None, (ending, self._fault or text)))

    def close(self, at_once: bool = False) -> None:
        """Close its stdin and wait for its end; it is stopped where it has not ended in 10 s, or at once."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        if at_once:
            self._process.terminate()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for stop in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                stop()
        self._process.wait()
        self._drop_errors()

    def _drop_errors(self) -> None:
        if self._errors is not None:
            self._errors.close()
            self._errors = None


def parse_failure(line: bytes | str) -> KforgeError | None:
    """The error of the object that a command ends with when it fails, or None."""
    try:
        return KforgeError.of(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def parse_answer(line: bytes | str) -> dict[str, Any] | None:
    """An answer of the protocol with what its kind must have, or None."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("protocol") != wire.PROTOCOL:
        return None
    return message if wire.well_formed(message) else None
