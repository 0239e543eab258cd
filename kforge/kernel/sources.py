"""Reads source files that people and models hand over: whatever stands under a name, it is text or one clear error."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kforge.errors import UsageError

MAX_BYTES = 4 << 20  # of one source file; the largest generated kernels have 0.1 MB
_HINT = "sources are UTF-8 files; a candidate's .cu, .cuh and .h files lie beside its module, and nothing else so named"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_source(path: Path) -> str:
    """The text of a file: UTF-8, with or without a byte order mark, line ends as newlines.

    UsageError for what cannot be read as such: absent, no regular file (a pipe is not waited for), binary, too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(f"{path} is {_KINDS.get(stat.S_IFMT(mode), 'no file')}, not a source file", _HINT)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path} cannot be read: {reason}", _HINT) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES >> 20} MiB, too much for a source file", _HINT)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text: byte {error.start} is {data[error.start]:#04x}", _HINT) from error
    if "\0" in text:
        raise UsageError(f"{path} is no text: byte {data.index(0)} is null", _HINT)
    return text.replace("\r\n", "\n").replace("\r", "\n")
