"""What leaves the core: a candidate accepted beside op.py, taken back, exported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import ExportError
from kforge.ui.serving.session import CoreSession
from kforge.ui.text import one_line

if TYPE_CHECKING:
    from kforge.export.accepting import Entry


_ELSEWHERE = "choose another folder"
FULL = "/verify full"


class Leaving(CoreSession):
    """Commands that write what the developer keeps."""

    def standing(self) -> Entry | None:
        """The accept of op.py that stands, whichever process made it; None where none does."""
        from kforge.export import accepting

        taken = [e for e in accepting.entries(self.state) if not e.undone and Path(e.task) == self.op]
        return taken[-1] if taken else None

    def _accepted_digest(self) -> str:
        entry = self.standing()
        return entry.candidate if entry is not None else ""

    def do_evidence(self, candidate: str) -> dict[str, Any]:
        """What is known of a candidate, and where accepting it would write."""
        from kforge.export.domain import judged_domain, said
        from kforge.export.evidence import find_evidence, of_task
        from kforge.export.formats import formats_of

        laid = self.shelf.lay_out(self.shelf.candidate(candidate))
        found = of_task(find_evidence(laid, self.state, self.op), self.op)
        return {
            "candidate": found.candidate.digest,
            "report": found.report,
            "problem": found.problem,
            "warnings": [f"{text}: {FULL} does that" for text in found.warnings],
            "verified": found.verified,
            "stamps": list(found.stamps),
            "formats": list(formats_of(found.candidate.files[found.candidate.module])),
            "domain": said(judged_domain(found.report, self.op.name, FULL)),
            "run": found.run,
            "folder": str(self.op.parent),
            "files": sorted(found.candidate.files),
            "accepted": self._accepted_digest(),
        }

    def do_accept(self, candidate: str, force: bool = False) -> dict[str, Any]:
        """Put a verified candidate beside op.py, as one entry that can be undone."""
        from kforge.export import accepting
        from kforge.export.evidence import find_evidence, of_task

        laid = self.shelf.lay_out(self.shelf.candidate(candidate))
        found = of_task(find_evidence(laid, self.state, self.op), self.op)
        if found.problem and not (force or found.verified):
            raise ExportError(f"not accepted: {found.problem}", "verify it first (F5)")
        files, folder = found.candidate.files, self.op.parent
        entry = accepting.accept(self.op, found.candidate.digest, files, folder, self.state)
        paths = [str(folder / name) for name in sorted(files)]
        self.note("accepted", candidate=found.candidate.digest, files=paths, folder=str(folder))
        return {"entry": entry.number, "files": paths, "folder": str(folder)}

    def do_undo(self) -> dict[str, Any]:
        """Take the last accept of op.py back, of an earlier session too."""
        from kforge.export import accepting

        entry = accepting.undo(self.state, self.op)
        paths = [str(Path(entry.folder) / name) for name in sorted(entry.after)]
        self.note("undone", files=paths)
        return {"entry": entry.number, "files": paths, "folder": entry.folder, "accepted": self._accepted_digest()}

    def do_export(
        self,
        candidate: str,
        to: str,
        format: str = "extension",
        name: str = "",
        force: bool = False,
        build: bool = True,
    ) -> dict[str, Any]:
        """Make a package of a candidate. name: the package's, which is its operators' namespace too."""
        from kforge.export.domain import exported_words
        from kforge.export.exporting import Request, export
        from kforge.export.package import Options
        from kforge.task import resolve_device

        module = self.shelf.lay_out(self.shelf.candidate(candidate))
        request = Request(
            module=module,
            to=place(to, self.here),
            state=self.state,
            layout=format,
            task=self.op,
            options=Options(name=name),
            force=force,
            build=build,
            device=str(resolve_device(self.settings.device)),
        )
        done = export(request, lambda kind, data: self.tell(kind, data, self.run))
        for line in exported_words(done.export):
            self.tell("message", {"text": line, "level": "info"}, self.run)
        data = done.as_dict()
        stamp = ", ".join(data["stamps"])
        self.note("exported", candidate=candidate, folder=str(request.to), format=format, stamp=stamp)
        return {**data, "folder": str(request.to), "stamp": stamp}


def place(to: str, here: Path) -> Path:
    """The folder that is meant, from `here` on. ExportError where none can be made there, before any work is done."""
    try:
        folder = here / Path(to).expanduser()
        if "\0" in to:  # which `exists` takes for a name of nothing
            raise ValueError("it has a NUL in it")
        above = next(path for path in (folder, *folder.parents) if path.exists())
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, ~nobody
        raise ExportError(f"{one_line(to, 60)} cannot be a folder: {error}", _ELSEWHERE) from error
    if not above.is_dir():
        raise ExportError(f"{above} is not a folder", _ELSEWHERE)
    if not os.access(above, os.W_OK):
        raise ExportError(f"{above} cannot be written", _ELSEWHERE)
    return folder
