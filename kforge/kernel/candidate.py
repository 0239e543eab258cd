"""A candidate: the files that replace the reference, and where they came from. Data only; nothing runs here."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from kforge.errors import UsageError
from kforge.kernel.sources import read_source

MAX_FILES = 100
_SOURCES = frozenset({".cu", ".cuh", ".h"})


@dataclass(frozen=True)
class Candidate:
    """A set of source files defining `ModelNew`, with its provenance.

    files: relative name -> text; `module` names the file that defines ModelNew (`<op>_kforge.py`).
    proposer: who made it ("engine", a model's name, "user"). parent: digest of the candidate it was derived from.
    idea and expected_gain: in words and as a factor over the parent, recorded to be compared with what was achieved.
    """

    module: str
    files: dict[str, str] = field(hash=False)
    proposer: str = "user"
    parent: str | None = None
    idea: str = ""
    expected_gain: float | None = None

    @property
    def digest(self) -> str:
        """Content hash (16 hex digits) over names and texts of the files; provenance does not enter."""
        h = hashlib.sha256()
        for name in sorted(self.files):
            for part in (name, self.files[name]):
                data = part.encode()
                h.update(len(data).to_bytes(8, "little") + data)
        return h.hexdigest()[:16]

    def with_file(self, name: str, text: str) -> Candidate:
        """A child of this candidate in which one file has another text."""
        return replace(self, files={**self.files, name: text}, parent=self.digest)

    def write(self, folder: Path) -> list[Path]:
        """Write the files into `folder` (made if absent); returns their paths in order of name.

        Each is written under a new name and moved into place: an earlier run of hostile code may have left a link, a
        pipe or a folder under the name, and nothing is written through it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name in sorted(self.files):
            path = folder / name
            fresh = folder / f".{secrets.token_hex(8)}"
            with fresh.open("x") as file:
                file.write(self.files[name])
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            fresh.replace(path)
            paths.append(path)
        return paths

    @staticmethod
    def read(module: Path, **provenance: object) -> Candidate:
        """The candidate whose module is this file; its sources are the .cu, .cuh and .h files beside it.

        UsageError names the file that is no source: binary, too large, unreadable, a folder, a link to nothing ...
        """
        files = {module.name: read_source(module)}
        try:
            beside = sorted(path for path in module.parent.iterdir() if path.suffix in _SOURCES)
        except OSError as error:
            raise UsageError(f"the folder {module.parent} cannot be read: {error.strerror}") from error
        if len(beside) > MAX_FILES:
            raise UsageError(
                f"{len(beside)} sources lie beside {module}; a candidate has at most {MAX_FILES}",
                "move the candidate's module and its own .cu, .cuh and .h files into a folder of their own",
            )
        files |= {path.name: read_source(path) for path in beside}
        return Candidate(module=module.name, files=files, **provenance)  # type: ignore[arg-type]
