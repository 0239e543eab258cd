"""Candidates and profiles of a project by digest: found in any run's store, laid out as files where a command needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kforge import scratch
from kforge.errors import UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.candidates import CandidateStore


class Shelf:
    """What the state folder `state` holds, read only."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._laid: dict[str, Path] = {}
        self._new: dict[str, Candidate] = {}
        self._origins: dict[tuple[str, str], list[int]] = {}

    def candidate(self, digest: str) -> Candidate:
        """By its digest or a unique beginning. UsageError where no run has it."""
        if digest in self._new:
            return self._new[digest]
        runs = self._state / "runs"
        for folder in sorted(runs.iterdir(), reverse=True) if runs.is_dir() else ():
            store = CandidateStore(folder / "candidates")
            if len(digest) >= 4 and sum(name.startswith(digest) for name in store) == 1:
                return store.get(digest)
        raise UsageError(f"no candidate {digest!r} in this project", "the timeline shows what there is")

    def put(self, candidate: Candidate) -> None:
        """A candidate that no store has yet."""
        self._new[candidate.digest] = candidate

    def lay_out(self, candidate: Candidate) -> Path:
        """The candidate's module file in a folder of its own that ends with this process."""
        digest = candidate.digest
        folder = self._laid.get(digest)
        if folder is None or not (folder / candidate.module).is_file():
            folder = scratch.make("candidate")
            candidate.write(folder)
            self._laid[digest] = folder  # when all of it is there: another thread may ask for the same one
        return folder / candidate.module

    def profile(self, digest: str) -> Mapping[str, Any] | None:
        """What `kforge profile` kept of a candidate, as far as a diff shows it; None where it was not profiled."""
        from kforge.agent.profile import ledger, saved
        from kforge.profiling.annotate.lines import annotate
        from kforge.profiling.evidence import as_json
        from kforge.profiling.feedback import Mode, feedback

        evidence = saved(digest, self._state)
        if evidence is None:
            return None
        told = feedback(evidence, Mode.TOOLS, ledger(self._state)).as_dict()
        return {**told, "lines": as_json(annotate(evidence))}

    def origins(self, reference: tuple[str, str]) -> list[int]:
        """Lines of op.py that compute something, as far as its text says: those of its functions' bodies."""
        import ast

        if reference not in self._origins:
            try:
                tree = ast.parse(reference[1])
            except SyntaxError:
                return []
            bodies = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in ("forward",)]
            self._origins[reference] = sorted({s.lineno for body in bodies for s in body.body})
        return self._origins[reference]
