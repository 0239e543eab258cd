"""Source files as the editor has them: their bytes, line ends included, are what is saved again."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from kforge.errors import KforgeError

LARGE, LONG = 1 << 20, 10_000  # characters of a file and of a line, beyond which each key would take too long
_LINES, _COLUMNS = 2000, 500  # of the excerpt that is shown then
_SEPARATORS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def read(path: Path) -> tuple[str, bool]:
    """(text, whether it can be edited and written back unchanged). KforgeError where it cannot be read; a pipe in its
    place is not waited for.

    It cannot where it is not UTF-8, or has separators such as form feeds, at which the editor would break lines.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise KforgeError(f"{path} is no file that can be read", "open another one")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise KforgeError(
            f"{path} cannot be read: {error.strerror}", "give permission, or open another file"
        ) from error
    try:
        text = data.decode()
        return text, _SEPARATORS.search(text) is None
    except UnicodeDecodeError:
        return data.decode(errors="replace"), False


def excerpt(text: str) -> tuple[str, str]:
    """(the text, or its beginning where the editor would be slow; why it is an excerpt, "" for a whole text)."""
    lines = text.split("\n") if len(text) > LONG else []
    if len(text) <= LARGE and all(len(line) <= LONG for line in lines):
        return text, ""
    size = f"{len(text) / 1e6:.1f} MB" if len(text) > LARGE else f"a line of {max(map(len, lines))} characters"
    shown = [line if len(line) <= _COLUMNS else f"{line[:_COLUMNS]} ..." for line in lines[:_LINES]]
    return "\n".join(shown), f"{size}: an excerpt, edit it in another program"


def write(path: Path, text: str) -> None:
    """Whole or not at all, with the permissions that the file has; a link stays a link. StoreError where it cannot."""
    from kforge.store.faults import storing

    target = Path(os.path.realpath(path))  # a link to itself is an error of the system's below, as any other
    fresh = target.with_name(f".{target.name}.kforge-new")
    with storing(target):
        try:
            fresh.write_bytes(text.encode())
            if target.exists():
                fresh.chmod(target.stat().st_mode & 0o777)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
