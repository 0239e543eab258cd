"""One small task opened for a whole module of tests: its judge is prepared once, evaluations are real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kforge.agent.opening import SuggestOptions, opened
from tests.agent.small import TASK, Opened


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The small task on the emulator, with a budget that no test reaches."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.py").write_text(TASK)
    events: list[tuple[str, dict[str, Any]]] = []
    options = SuggestOptions(out=folder / "out", budget=3600.0, device="cpu", state=folder / ".kforge", here=folder)
    with opened(folder / "small.py", options, lambda kind, data: events.append((kind, data))) as bench:
        yield Opened(bench, events)
