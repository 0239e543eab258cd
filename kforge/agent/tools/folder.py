"""The working folder of a candidate as a model sees it: a flat set of text files, and no way out of it."""

from __future__ import annotations

import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from kforge.errors import StoreError, UsageError
from kforge.kernel.sources import read_source

SUFFIXES = (".py", ".cu", ".cuh", ".h")
_NAME_BYTES = 200
_NAME = re.compile(r"""[^.\-/\\:*?"<>|][^/\\:*?"<>|]{0,99}(\.py|\.cu|\.cuh|\.h)""")  # op.py may be named my-op.py


@dataclass(frozen=True)
class Folder:
    """path: the folder. most: files in it. file_bytes: of one file in UTF-8."""

    path: Path
    most: int
    file_bytes: int

    def names(self) -> list[str]:
        """The files that are there, in order; what is no plain file of an allowed name is not shown."""
        if not self.path.is_dir():
            return []
        with os.scandir(self.path) as entries:
            return sorted(e.name for e in entries if _allowed(e.name) and e.is_file(follow_symlinks=False))

    def read(self, name: str) -> str:
        """The text of one file. UsageError says what there is instead."""
        path = self._place(name)
        if name not in self.names():
            raise UsageError(f"there is no file {name}", "files: " + (", ".join(self.names()) or "none yet"))
        return read_source(path)

    def write(self, name: str, text: str) -> bool:
        """Write one file whole; True where it is new. UsageError for a name or a size that is not allowed."""
        path = self._place(name)
        data = _encoded(name, text)
        if len(data) > self.file_bytes:
            raise UsageError(f"{name} would have {len(data)} bytes; the limit is {self.file_bytes}")
        names = self.names()
        new = name not in names
        if new and len(names) >= self.most:
            raise UsageError(f"there are {len(names)} files already, which is the limit", "write over one of them")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            fresh = self.path / f".{secrets.token_hex(8)}"
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with open(descriptor, "wb") as file:
                file.write(data)
            try:
                os.replace(fresh, path)
            except IsADirectoryError as error:
                fresh.unlink()
                raise UsageError(f"{name} is a folder", "choose another name") from error
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}", "make room, or give permission") from error
        return new

    def _place(self, name: str) -> Path:
        if not _allowed(name):
            kinds = ", ".join(SUFFIXES)
            raise UsageError(
                f"{name[:120]!r} is no name of a file here",
                f"files lie in one flat folder, named like softmax_kforge.cu, with an ending of {kinds}",
            )
        path = self.path / name
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return path
        if stat.S_ISLNK(mode):
            raise UsageError(f"{name} is a link, which is not followed", "choose another name")
        return path


def _allowed(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and name.isprintable() and len(name.encode()) <= _NAME_BYTES


def _encoded(name: str, text: str) -> bytes:
    if "\0" in text:
        raise UsageError(f"the text of {name} holds a null character", "sources are plain text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text of {name} is no Unicode text: {error.reason}", "sources are plain text") from error
