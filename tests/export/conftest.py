"""The tests of the export share one judged candidate, and find support.py beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """(op.py, the candidate's module, the state folder) of a candidate that plan quick verified on the emulator."""
    from support import judge, write_project

    folder = tmp_path_factory.mktemp("judged")
    task, module = write_project(folder)
    report = judge(task, module, folder / ".kforge")
    assert report.status.value == "verified", report.failure
    return task, module, folder / ".kforge"
