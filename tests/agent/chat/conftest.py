"""A workbench for a conversation: the judge is prepared once, each test has a run, tree and meter of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kforge.agent.budget import Budget
from kforge.agent.chat.model import Key, Model
from kforge.agent.chat.proposer import ChatProposer
from kforge.agent.chat.reader import Patience
from kforge.agent.control import Control
from kforge.agent.proposers import Context
from kforge.agent.search.tree import Node
from kforge.agent.session import Session
from kforge.agent.workbench import Workbench
from kforge.kernel.candidate import Candidate
from kforge.store.events import RunLog
from tests.agent.scripted_model import ScriptedModel
from tests.agent.small import TASK
from tests.patience import PATIENCE_S

PATIENCE = Patience(attempts=3, first=0.01, silence=PATIENCE_S, longest=2.0)


class Run:
    """One run of the small task, with what it told."""

    def __init__(self, bench: Workbench, events: list[tuple[str, dict[str, Any]]]) -> None:
        self.bench, self.events = bench, events

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The data of the events of one kind, in order."""
        return [data for name, data in self.events if name == kind]

    def proposer(self, served: ScriptedModel, *, roles: dict[str, Model] | None = None, **options: Any) -> ChatProposer:
        """Talks to a scripted model; options starting with `model_` are the model's."""
        spec = {name.removeprefix("model_"): options.pop(name) for name in list(options) if name.startswith("model_")}
        model = Model("scripted", served.base_url, Key("sk-secret-0123456789"), **spec)
        models = {"executor": model} | {role: other or model for role, other in (roles or {}).items()}
        return ChatProposer(models, patience=PATIENCE, **options)

    def propose(self, served: ScriptedModel, context: dict[str, Any] | None = None, **options: Any) -> Candidate | None:
        """One proposal from the reference."""
        return self.proposer(served, **options).propose(self.context(**(context or {})))

    def known(self, candidate: Candidate, status: str) -> Node:
        """A node of the tree as it stands after a verdict, where a test needs no verdict of its own."""
        node = self.bench.propose(candidate)
        node.status = status
        return node

    def context(self, **fields: Any) -> Context:
        """From the root, unless another parent is given."""
        return Context(self.bench, fields.pop("parent", self.bench.tree.root), **fields)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The judge's side of the small task."""
    from kforge.environment import prepare
    from kforge.task import load_task

    folder = tmp_path_factory.mktemp("prepared")
    (folder / "small.py").write_text(TASK)
    return prepare(load_task(folder / "small.py"), "cpu", folder=folder / "work")


@pytest.fixture
def begin(prepared: Any, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Begins runs: begin(tokens=..., usd=...); begin(log=RunLog) goes on in the log of one that was cut off."""
    opened: list[Workbench] = []

    def make(log: RunLog | None = None, constraints: Any = (), **limits: Any) -> Run:
        from kforge.agent.resume import read_past

        events: list[tuple[str, dict[str, Any]]] = []
        state, task = tmp_path / ".kforge", prepared.task.path

        def tell(kind: str, data: dict[str, Any]) -> None:
            events.append((kind, data))

        if log is None:
            session = Session(state, task, {"out": "out"}, tell)
        else:
            session = Session.reopen(state, log.folder, {"out": "out"}, tell)
        bench = Workbench(
            prepared,
            session,
            arch="sm_90a",
            control=Control(),
            budget=Budget(**{"seconds": 3600.0} | limits),
            constraints=constraints,
            state=state,
        )
        if log is not None:
            read_past(log.folder).restore(bench)
        opened.append(bench)
        return Run(bench, events)

    yield make
    for bench in opened:
        bench.close()
        bench.session.close()


@pytest.fixture
def run(begin: Callable[..., Run]) -> Run:
    """A run without limits that a test reaches."""
    return begin()
