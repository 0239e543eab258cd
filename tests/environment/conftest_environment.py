"""One warm parent and one prepared task each for all end-to-end tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kforge.environment.preparation import Prepared, prepare
from kforge.environment.report import Report
from kforge.kernel.candidate import Candidate

sys.path.insert(0, str(Path(__file__).parent))  # hand_written, whatever pytest's import mode
TASKS = Path(__file__).parent / "tasks"


@pytest.fixture(scope="session")
def zygote() -> Iterator[object]:
    from kforge.worker import Zygote

    with Zygote() as warm:
        yield warm


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Prepared]:
    """prepared("softmax"): the judge's side of tests/environment/tasks/softmax.py, made once a session."""
    from kforge.task import load_task

    made: dict[str, Prepared] = {}

    def get(name: str) -> Prepared:
        if name not in made:
            made[name] = prepare(load_task(TASKS / f"{name}.py"), "cpu", folder=tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture
def judge(zygote: object, prepared: Callable[[str], Prepared], tmp_path: Path) -> Callable[..., Report]:
    """judge("softmax", candidate, plan="quick") -> Report, on the emulator; repro.py goes below tmp_path."""
    from kforge.environment import evaluate

    def run(task: str, candidate: Candidate, plan: str = "quick", **options: object) -> Report:
        ready = prepared(task)
        options = {"zygote": zygote, "reference": ready, "repro": tmp_path} | options
        return evaluate(ready.task, candidate, plan, **options)  # type: ignore[arg-type]

    return run
