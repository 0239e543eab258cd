"""The three standard streams as a command needs them: there, and harmless when closed, full or read by nobody."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO, TextIO

_narration: TextIO | None = None


def make_sure_they_are_open() -> None:
    """Put /dev/null in the place of a closed stdin, stdout or stderr.

    Otherwise the next file that is opened (the run index) would get its number, and be written to.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free is this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def take_stdin() -> BinaryIO:
    """stdin for a command that is spoken to there. Programs started from here get none of it.

    Not to be closed: a thread may be waiting in it when the command ends.
    """
    fd = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return os.fdopen(fd, "rb")


def narration() -> TextIO:
    """stderr by a descriptor of its own, whatever user code does to sys.stderr."""
    global _narration
    if _narration is None:
        _narration = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
    return _narration


def say(text: str) -> None:
    """Write to stderr as it is; silence from now on when nobody can read it any more."""
    stream = narration()
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        mute()


def probe() -> None:
    """Mute stderr at once where it takes nothing (a full disk): what user code prints goes there, and must not fail."""
    try:
        os.write(2, b"")
    except OSError:
        mute()


def mute() -> None:
    """From now on stderr, and what is printed there by way of file descriptor 1, goes nowhere."""
    shared = os.path.sameopenfile(1, 2)
    to_null(narration().fileno(), 2, *([1] if shared else []))


def to_null(*descriptors: int) -> None:
    """Let these descriptors swallow what is written to them."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)


def flush_stdout() -> None:
    """Flush Python's own stdout; what user code has put in its place is left alone."""
    stream = sys.__stdout__
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        to_null(1)
