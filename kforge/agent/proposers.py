"""Who proposes candidates: the protocol, the engine, the replay of a recorded run. Models are in kforge.agent.chat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kforge.agent.search.tree import Node
from kforge.errors import KforgeError, NoCandidate, UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.candidates import CandidateStore
from kforge.store.events import LOG_NAME, Event, replay

if TYPE_CHECKING:
    from kforge.agent.workbench import Workbench


@dataclass(frozen=True)
class Context:
    """What a proposal starts from. parent: the root for a first one. exemplars: attempts to learn from; direction: the
    kind of change wanted, "" for any; avoid: kinds that have failed here."""

    bench: Workbench
    parent: Node
    exemplars: tuple[Node, ...] = ()
    direction: str = ""
    avoid: tuple[str, ...] = ()


class Proposer(Protocol):
    """Makes one candidate at a time."""

    name: str

    def propose(self, context: Context) -> Candidate | None:
        """The next candidate, None where there is nothing more."""
        ...


class EngineProposer:
    """The engine's candidates, best guess first, each once. blocked: why it has none, in words."""

    name = "engine"

    def __init__(self) -> None:
        self.blocked = ""
        self._source: Iterator[Candidate] | None = None

    def propose(self, context: Context) -> Candidate | None:
        """The next that this run has not judged yet; what it was made from is no matter to the engine."""
        bench = context.bench
        if self._source is None:
            self._source = self._candidates(bench)
        for candidate in self._source:
            node = bench.tree.find(candidate.digest)
            if node is None or node.status is None:
                return candidate
        return None

    def _candidates(self, bench: Workbench) -> Iterator[Candidate]:
        from kforge.engine import propose, propose_pair

        prepared = bench.prepared
        make = propose if bench.task.gradients is None else propose_pair
        try:
            yield from make(bench.task, prepared.capture(), arch=bench.arch, device=bench.device, facts=prepared.facts)
        except NoCandidate as error:
            self.blocked = error.message
            bench.event("message", text=error.message, level="warning")


class ReplayProposer:
    """The candidates of a recorded run in their order, from its folder; no model and no engine is asked."""

    name = "replay"

    def __init__(self, folder: Path) -> None:
        """UsageError where there is no such run, or none of its candidates is left."""
        self.folder = folder
        path = folder / LOG_NAME
        if not path.is_file():
            raise UsageError(f"no run in {folder}", "`kforge runs list` shows what exists")
        self.events: tuple[Event, ...] = tuple(replay(path))
        self.blocked = ""
        self._store = CandidateStore(folder / "candidates")
        self._left = [event.data for event in self.events if event.kind == "proposed"]
        if not self._left:
            raise UsageError(f"run {folder.name} has no candidates", "choose one that has: `kforge runs list`")

    def propose(self, context: Context) -> Candidate | None:
        """The next recorded candidate. KforgeError where its files are damaged."""
        while self._left:
            data = self._left.pop(0)
            digest = str(data["candidate"])
            node = context.bench.tree.find(digest)
            if node is not None and node.status is not None:
                continue
            if digest not in self._store:
                raise KforgeError(f"candidate {digest} of run {self.folder.name} is gone", "its files were removed")
            return self._store.get(digest)
        return None

    def direction(self, digest: str) -> str:
        """The kind of change that was recorded with a candidate."""
        return next(
            (str(e.data.get("direction") or "") for e in self.events
             if e.kind == "proposed" and e.data["candidate"] == digest), ""
        )  # fmt: skip
