"""The border to the user's code: whatever it raises becomes one line that names the file and the line.

This is the one place of the room that catches anything: a user's file may raise whatever it likes.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kforge.errors import KforgeError, MissingError, Stop, TaskError

# What torch and Triton say when a piece of code truly needs a GPU that is not there.
_NEEDS_GPU = (
    "not linked with support for cuda",
    "not compiled with cuda enabled",
    "found no nvidia driver",
    "no cuda gpus are available",
    "0 active drivers",
    "cannot access accelerator device",
    "no nvidia driver",
)
_EXTRAS = {"triton": "triton", "helion": "helion"}


def first_line(error: BaseException) -> str:
    """Type and first line of the message: `ValueError: bad`."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def where(error: BaseException, path: Path) -> str:
    """`op.py:7` for the innermost frame of `error` inside `path`; the bare name if none lies there."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path.name}:{lines[-1]}" if lines else path.name


class PassesThrough(BaseException):
    """Ends the user's code from outside: the border lets it through."""


class Mark:
    """What of the user's code runs now, in memory that another process can read after this one has died."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def read(self) -> str:
        """The sentence's beginning (`op.py: loading failed:`), or the empty string."""
        return self._memory[:].rstrip(b"\0").decode(errors="replace")

    def write(self, text: str) -> None:
        data = text.encode(errors="replace")[: len(self._memory)]
        self._memory[:] = data.ljust(len(self._memory), b"\0")


mark: Mark | None = None  # set by a program whose parent process watches it


@contextmanager
def local_imports(path: Path, what: str = "") -> Iterator[None]:
    """Let the user's code import what lies beside op.py, as running it as a script would.

    Whatever the code does to sys.path, what was there before is there again afterwards, and what it added stays. It may
    change the working folder, though not to one that is gone.
    """
    entry, before, process, here = str(path.parent), list(sys.path), os.getpid(), _working_folder()
    sys.path.insert(0, entry)
    outer = mark.read() if mark is not None else ""
    if mark is not None:
        mark.write(f"{path.name}: {what}" if what else f"{path.name}: the reference")
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)  # a process that the user's code forked and that came back out of it: not ours
        if mark is not None:
            mark.write(outer)
        if not isinstance(sys.path, list):
            sys.path = []
        if entry in sys.path:
            sys.path.remove(entry)
        sys.path += [other for other in before if other not in sys.path]
        if _working_folder() is None:
            os.chdir(here or path.parent)


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


@contextmanager
def user_code(path: Path, what: str) -> Iterator[None]:
    """Run the block as the user's code: `what` completes the sentence `op.py:7: <what> ValueError: bad`.

    Raises TaskError (exit 2), whatever the code raised; MissingError (exit 3) when a GPU or an extra of kforge is what
    is missing. A signal's Stop passes, and so does ctrl-c where Python's own handler turns it into KeyboardInterrupt.
    """
    with local_imports(path, what):
        try:
            yield
        except (KforgeError, Stop, PassesThrough, GeneratorExit):
            raise
        except KeyboardInterrupt as error:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                raise
            raise as_error(error, path, what) from error
        except BaseException as error:
            raise as_error(error, path, what) from error


def as_error(error: BaseException, path: Path, what: str) -> KforgeError:
    """The error a person sees for an exception that the user's code raised."""
    place = where(error, path)
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in _EXTRAS:
        extra = _EXTRAS[package]
        return MissingError(
            f"{place}: {package} is not installed", f"install the extra: pip install 'kforge-cuda[{extra}]'"
        )
    if any(text in str(error).lower() for text in _NEEDS_GPU):
        return MissingError(f"{place}: this needs a GPU: {first_line(error)}", "run it on a machine with an NVIDIA GPU")
    return TaskError(f"{place}: {what} {first_line(error)}")
