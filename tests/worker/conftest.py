"""One warm parent for all tests of the worker, and a short way to put a candidate's source into a child."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Child, Limits, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as parent:
        yield parent


@pytest.fixture
def fork(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """fork(candidate, phase=..., limits=...) gives a loaded child; all are ended with the test."""
    children: list[Child] = []

    def make(
        what: Candidate, phase: str = "run", limits: Limits | None = None, load: bool = True, **options: object
    ) -> Child:
        folder = tmp_path / f"box{len(children)}"
        child = zygote.fork(folder, "cpu", phase, limits or Limits(call_s=120))
        children.append(child)
        if load:
            child.load(what, Call(), {}, **options)
        return child

    yield make
    for child in children:
        child.close()
