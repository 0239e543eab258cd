"""One workbench on a small softmax for all tests of tools, and a toolbox with a folder of its own for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kforge.agent.tools import Toolbox, ToolResult, call
from kforge.agent.workbench import Workbench
from tests.agent.tools.sources import MODULE, OP, SOURCE

Use = Callable[..., ToolResult]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A real workbench on the emulator: judge, log, tree and memory."""
    from kforge.agent.budget import Budget
    from kforge.agent.memory import Memory
    from kforge.agent.session import Session
    from kforge.environment import prepare
    from kforge.task import load_task

    place = tmp_path_factory.mktemp("softmax")
    op = place / "softmax.py"
    op.write_text(OP)
    session = Session(place / ".kforge", op, {}, lambda kind, data: None)
    prepared = prepare(load_task(op), "cpu", folder=session.work)
    memory = Memory(place / ".kforge" / "memory.sqlite")
    budget = Budget(seconds=float("inf"))
    made = Workbench(prepared, session, arch="sm_90a", state=place / ".kforge", memory=memory, budget=budget)
    yield made
    made.close()
    session.close()


@pytest.fixture
def box(bench: Workbench, tmp_path: Path) -> Toolbox:
    """An empty working folder on that workbench."""
    return Toolbox(bench, tmp_path / "work", bench.tree.root)


@pytest.fixture
def use(box: Toolbox) -> Use:
    """use(tool, **arguments): one call as a model makes it."""

    def run(name: str, /, **arguments: Any) -> ToolResult:
        return call(name, arguments, box)

    return run


@pytest.fixture
def softmax(use: Use) -> None:
    """A candidate that is right, in the working folder."""
    use("write_file", name="softmax_kforge.py", text=MODULE)
    use("write_file", name="softmax_kforge.cu", text=SOURCE)
