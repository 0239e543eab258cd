"""The tests of the export share one judged candidate, and find support.py beside them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Any]:
    """loaded(export, layout): the exported Python package, imported; forgotten afterwards."""
    from kforge.export.formats import find_format
    from kforge.export.package import Export
    from kforge.export.placing import place, sealed

    names: list[str] = []

    def load(export: Export, layout: str = "extension") -> Any:
        place(tmp_path / "to" / export.package, sealed(dict(find_format(layout)(export, "0.1.0"))))
        sys.path.insert(0, str(tmp_path / "to" / export.package / "src"))
        names.append(export.package)
        return importlib.import_module(export.package)

    yield load
    for name in [n for n in sys.modules if n.split(".")[0] in names]:
        del sys.modules[name]
    sys.path[:] = [p for p in sys.path if not p.startswith(str(tmp_path / "to"))]
