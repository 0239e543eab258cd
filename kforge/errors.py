"""The one error tree. Every error a person can meet has a message, a hint (what to do next) and an exit code.

The same text is shown in the terminal, in the UI and under --json. Exit codes (CONTRACTS 6): 1 no verified
candidate, 2 usage or task, 3 nothing can be done without a missing part, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class KforgeError(Exception):
    """Base class: `message` says what is wrong in one line, `hint` what to do next (may be empty)."""

    kind = "internal"
    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @staticmethod
    def of(value: Mapping[str, Any]) -> KforgeError:
        """The error that another process said: the inverse of `as_dict`, of this base class, with its kind and code."""
        said = value["error"]
        error = KforgeError(str(said["message"]), str(said.get("hint", "")))
        error.kind = str(said.get("kind", error.kind))
        code = value.get("exit_code")
        if isinstance(code, int) and 0 < code < 256:
            error.exit_code = code
        return error

    def as_dict(self) -> dict[str, object]:
        """The object that --json prints for this error."""
        error = {"kind": self.kind, "message": self.message, "hint": self.hint}
        return {"error": error, "exit_code": self.exit_code}


class UsageError(KforgeError):
    """The command line, a config file or an argument is wrong."""

    kind = "usage"
    exit_code = 2


class TaskError(KforgeError):
    """op.py is not a task: missing file, syntax error, no reference, rejected inputs, non-deterministic ..."""

    kind = "task"
    exit_code = 2


class StoreError(KforgeError):
    """What kforge keeps or hands over cannot be written or read: a full disk, a folder without permission."""

    kind = "store"


class MissingError(KforgeError):
    """Nothing can be done without a part that is absent: a GPU, a compiler, a package."""

    kind = "missing"
    exit_code = 3


class TooLargeError(MissingError):
    """The inputs are too large for the emulator."""

    kind = "too_large"


class BuildError(KforgeError):
    """A kernel does not compile. `log` holds the compiler's whole output."""

    kind = "build"

    def __init__(self, message: str, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint)
        self.log = log


class LaunchError(KforgeError):
    """A Kernel was called with arguments that its signature or its conditions do not allow."""

    kind = "launch"


class EmulatorError(KforgeError):
    """A kernel failed in the emulator (divergent barrier, deadlock, out of bounds) or cannot run there.

    `gpu_only` names the instruction or feature when the kernel needs a GPU (WGMMA, TMA, unknown PTX).
    """

    kind = "emulator"

    def __init__(self, message: str, hint: str = "", gpu_only: str = "") -> None:
        super().__init__(message, hint)
        self.gpu_only = gpu_only


class MisalignedError(EmulatorError):
    """A kernel read or wrote at an address that is no multiple of the access's size, where every GPU faults."""

    kind = "misaligned"


class ChildFailed(KforgeError):
    """A candidate's process did not answer as it should; only that candidate ends, the next evaluation is unaffected.

    kind: "crashed" (died, or its CUDA context is poisoned), "timed_out", "raised" (an exception in the candidate's
    code, `text` is its traceback), "protocol" (a malformed, forged or oversized answer), "damaged" (memory was written
    outside of every allocation). `log`: tail of what the
    candidate printed, for people to read and never for a decision. `error`: kind, message and hint of an error of
    this tree raised in the child (with `log` for BuildError, `gpu_only` for EmulatorError), else empty.
    """

    def __init__(self, kind: str, text: str, log: str = "", error: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.log = log
        self.error = error or {}

    @property
    def ended(self) -> str:
        """In words, what the candidate did, to be put behind its name."""
        return _ENDED.get(self.kind, self.kind)


_ENDED = {
    "crashed": "crashed",
    "timed_out": "came to no end",
    "raised": "raised an error",
    "protocol": "gave an answer that no honest process gives",
    "damaged": "wrote outside of its memory",
}


class NoCandidate(KforgeError):
    """The engine has no kernel for this task; `operator` names what it cannot do."""

    kind = "no_candidate"

    def __init__(self, message: str, hint: str = "", operator: str = "") -> None:
        super().__init__(message, hint)
        self.operator = operator


class Stop(KeyboardInterrupt):
    """A signal asked the program to end. No KforgeError: what handles one candidate's failure must not swallow it."""


class Interrupted(KforgeError):
    """Stopped by the user; the state is saved."""

    kind = "interrupted"
    exit_code = 130


class ExportError(KforgeError):
    """A candidate cannot leave as a package: not verified, changed since, or written in a way not translated."""

    kind = "export"


class ProtocolError(KforgeError):
    """A line between a client and a worker that the other side cannot read."""

    kind = "protocol"
    exit_code = 2


class VersionMismatch(KforgeError):
    """A worker has other versions than the job asks for; the message names each."""

    kind = "mismatch"
    exit_code = 2


class Cancelled(KforgeError):
    """A job was called off by whoever asked for it."""

    kind = "cancelled"


class WorkerLost(KforgeError):
    """The workers that had a job died, or none could be started."""

    kind = "worker_lost"


class ModelError(KforgeError):
    """A chat model's endpoint cannot be used: refused, gone, out of quota, or answering what cannot be read."""

    kind = "model"
    exit_code = 3


class ContextOverflow(ModelError):
    """A request is longer than the model's window."""
