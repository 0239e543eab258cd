"""Recorded figures say where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FOLDERS = [RESULTS, *sorted(path for path in RESULTS.iterdir() if path.is_dir())]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_file_is_told_with_machine_versions_and_commit(folder: Path) -> None:
    """meta.json names the machine, the versions, the commit, and what made each file beside it."""
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["machine"] and meta["versions"] and meta["commit"]
    files = {path.name for path in folder.iterdir() if path.is_file()} - {"meta.json"}
    logs = {name for name in files if name.endswith(".jsonl") and name.removesuffix("l") in files}  # rows of a result
    assert {name for name in files - logs if name not in meta["files"]} == set()
