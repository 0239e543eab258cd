"""The border to the user's code: whatever it raises becomes one line that names the file and the line.

This is the one place of the room that catches any Exception: a user's file may raise anything.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kforge.errors import KforgeError, MissingError, TaskError

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


@contextmanager
def local_imports(folder: Path) -> Iterator[None]:
    """Let the user's code import what lies beside op.py, as running it as a script would."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


@contextmanager
def user_code(path: Path, what: str) -> Iterator[None]:
    """Run the block as the user's code: `what` completes the sentence `op.py:7: <what> ValueError: bad`.

    Raises TaskError (exit 2); MissingError (exit 3) when a GPU or an extra of kforge is what is missing.
    """
    with local_imports(path.parent):
        try:
            yield
        except KforgeError:
            raise
        except (Exception, SystemExit) as error:
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
