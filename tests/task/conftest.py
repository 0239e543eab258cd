"""Fixtures of the task room: an op.py from a text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kforge.task import Task, load_task

Loader = Callable[..., Task]


@pytest.fixture
def op(tmp_path: Path) -> Callable[..., Path]:
    """Write a dedented text (torch and nn imported unless raw) to op.py; returns its path."""

    def write(text: str, raw: bool = False) -> Path:
        path = tmp_path / "op.py"
        body = textwrap.dedent(text).lstrip("\n")
        path.write_text(body if raw else f"import torch\nimport torch.nn as nn\n{body}")
        return path

    return write


@pytest.fixture
def load(op: Callable[..., Path]) -> Loader:
    """As `op`, loaded."""
    return lambda text, raw=False: load_task(op(text, raw))
