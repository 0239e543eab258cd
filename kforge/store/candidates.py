"""Candidates on disk, each in a folder named by the hash of its content. Safe for several processes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kforge.errors import KforgeError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.faults import storing

_META = ".candidate.json"  # begins with a dot: never the name of a source file


class CandidateStore:
    """Candidates under `folder/<digest>/`, written once and never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def put(self, candidate: Candidate) -> str:
        """Store a candidate; returns its digest. Storing the same content again keeps the first provenance."""
        digest = candidate.digest
        target = self.folder / digest
        if target.is_dir():
            return digest
        for name in candidate.files:
            if name in {"", ".", "..", _META} or "/" in name or "\0" in name:
                raise KforgeError(f"a candidate's file cannot be named {name!r}", "use plain names without folders")
        with storing(self.folder):
            self._put(candidate, target)
        return digest

    def _put(self, candidate: Candidate, target: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        candidate.write(made)
        meta = {
            "module": candidate.module,
            "files": sorted(candidate.files),
            "proposer": candidate.proposer,
            "parent": candidate.parent,
            "idea": candidate.idea,
            "expected_gain": candidate.expected_gain,
        }
        (made / _META).write_text(json.dumps(meta, indent=1))
        try:
            os.rename(made, target)
        except OSError:
            shutil.rmtree(made)
            if not target.is_dir():  # another process may have stored the same content first: that is fine
                raise

    def get(self, digest: str) -> Candidate:
        """The candidate with this digest, or a unique beginning of it (at least 4 digits).

        UsageError when there is none or several; KforgeError when its files were changed on disk.
        """
        matches = [name for name in self if name.startswith(digest)] if len(digest) >= 4 else []
        if len(matches) != 1:
            found = "several candidates" if matches else "no candidate"
            raise UsageError(f"{found} {digest!r} in {self.folder}", "known: " + (", ".join(self) or "none"))
        folder = self.folder / matches[0]
        try:
            with storing(folder, doing="read"):
                meta = json.loads((folder / _META).read_text())
                files = {name: (folder / name).read_text() for name in meta.pop("files")}
            candidate = Candidate(files=files, **meta)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise KforgeError(f"candidate {matches[0]} was damaged on disk in {folder}", "it cannot be read") from error
        if candidate.digest != matches[0]:
            raise KforgeError(f"candidate {matches[0]} was changed on disk in {folder}", "its verdict no longer holds")
        return candidate

    def __iter__(self) -> Iterator[str]:
        """The digests in the store, sorted."""
        if self.folder.is_dir():
            yield from sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("."))

    def __contains__(self, digest: str) -> bool:
        return (self.folder / digest / _META).is_file()
