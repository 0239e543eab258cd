"""What the tests of the IDE share: a folder with a task in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """softmax.py in a working folder of its own."""
    shutil.copy(EXAMPLES / "softmax.py", tmp_path / "softmax.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("TMUX", raising=False)
    return tmp_path / "softmax.py"
