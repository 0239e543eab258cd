"""Sources that travel by content: op.py with the modules beside it that it imports, and a candidate's own files.

Imports are followed in the syntax tree, so nothing of the user's runs and no torch is needed where a parcel is packed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from kforge.errors import TaskError, UsageError
from kforge.kernel.candidate import Candidate

_SOURCES = (".cu", ".cuh", ".h")
NAME_CHARACTERS = 200  # of a file or folder: every file system takes them


@dataclass(frozen=True)
class Parcel:
    """A task's sources. files: path relative to op.py's folder -> text; entry: which of them is op.py."""

    entry: str
    files: dict[str, str] = field(hash=False)

    @property
    def digest(self) -> str:
        """Hash (16 hex digits) over names and texts: two tasks with the same op.py and other helpers differ."""
        return hashlib.sha256(json.dumps([self.entry, sorted(self.files.items())]).encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        """For a message."""
        return {"entry": self.entry, "files": dict(self.files)}

    @staticmethod
    def parse(data: object) -> Parcel:
        """From a message, every name checked. UsageError otherwise."""
        files = check_files(data.get("files") if isinstance(data, Mapping) else None, "task")
        entry = data.get("entry")  # type: ignore[attr-defined]
        if not isinstance(entry, str) or entry not in files or "/" in entry:
            raise UsageError("task.entry is not one of task.files", "name op.py's own file there")
        return Parcel(entry, files)

    def write(self, folder: Path) -> Path:
        """Write the files below `folder`; returns op.py's path."""
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder / self.entry


def pack_task(path: Path) -> Parcel:
    """op.py and every module of its folder that it imports, directly or not. TaskError for what cannot be read."""
    files = {path.name: _read(path)}
    waiting = [(path.name, files[path.name])]
    while waiting:
        name, text = waiting.pop()
        for found in _local(path.parent, name, text):
            relative = found.relative_to(path.parent).as_posix()
            if relative not in files:
                files[relative] = _read(found)
                waiting.append((relative, files[relative]))
    return Parcel(path.name, dict(sorted(files.items())))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise TaskError(f"no such file: {path}") from error
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path.name}: only UTF-8 sources can be sent to a worker") from error


def _local(root: Path, name: str, text: str) -> Iterator[Path]:
    """Files below `root` that the source `name` imports, the __init__ files of their packages included."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise TaskError(f"{name}:{error.lineno or 1}: syntax error: {error.msg}") from error
    package = PurePosixPath(name).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(root, tuple(alias.name.split(".")))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            parts = (*base, *(node.module.split(".") if node.module else ()))
            yield from _modules(root, parts)
            for alias in node.names:
                yield from _modules(root, (*parts, alias.name))


def _modules(root: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    for depth in range(1, len(parts) + 1):
        stem = root.joinpath(*parts[:depth])
        for path in (stem.with_name(stem.name + ".py"), stem / "__init__.py"):
            if path.is_file():
                yield path


def read_candidate(module: Path) -> Candidate:
    """The candidate of one module file with the sources beside it that it needs, and no other kernel's.

    A source is needed where its name occurs in the module or in a needed source; without any, all of the folder are.
    """
    candidate = Candidate.read(module)
    sources = {name: text for name, text in candidate.files.items() if Path(name).suffix in _SOURCES}
    needed = {module.name}
    while True:
        text = "\n".join(candidate.files[name] for name in needed)
        more = {name for name in sources if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.])", text)} - needed
        if not more:
            break
        needed |= more
    if len(needed) == 1:
        return candidate
    return Candidate(module.name, {name: candidate.files[name] for name in sorted(needed)}, candidate.proposer)


def candidate_as_json(candidate: Candidate) -> dict[str, Any]:
    """For a message."""
    return {"module": candidate.module, "files": dict(candidate.files), "proposer": candidate.proposer}


def parse_candidate(data: object) -> Candidate:
    """From a message, every name checked. UsageError otherwise."""
    files = check_files(data.get("files") if isinstance(data, Mapping) else None, "candidate")
    module = data.get("module")  # type: ignore[attr-defined]
    if not isinstance(module, str) or module not in files:
        raise UsageError("candidate.module is not one of candidate.files", "name the file that defines ModelNew")
    if nested := [name for name in files if "/" in name]:
        raise UsageError(f"candidate.files: {nested[0]!r} lies in a folder", "a candidate's files lie side by side")
    return Candidate(module, files, str(data.get("proposer") or "user"))  # type: ignore[attr-defined]


def check_files(files: object, what: str) -> dict[str, str]:
    """Name -> text as it is. UsageError for a name that is no plain relative path, or a text that is none."""
    if not isinstance(files, Mapping) or not files:
        raise UsageError(f"{what}.files is missing", f"{what} has files: name -> text")
    for name, text in files.items():
        path = PurePosixPath(str(name))
        plain = not path.is_absolute() and not {"..", "."} & set(path.parts) and path.as_posix() == name
        if not plain or "\0" in name or not isinstance(text, str) or max(map(len, path.parts)) > NAME_CHARACTERS:
            raise UsageError(f"{what}.files: {name!r} is not a plain relative name with a text")
        if any("\ud800" <= character <= "\udfff" for character in name + text):
            raise UsageError(f"{what}.files: {name!r} is not text: it holds half a character")
        if clash := next((str(parent) for parent in path.parents if str(parent) in files), None):
            raise UsageError(f"{what}.files: {clash!r} is a file and a folder")
    return {str(name): text for name, text in files.items()}
