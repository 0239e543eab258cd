"""Runs the command in processes of their own, with settings from their folder alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

ENV = {key: value for key, value in os.environ.items() if not key.startswith("KFORGE_")}
ENV["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])


def kforge(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with its settings taken from `cwd` alone."""
    command = [sys.executable, "-m", "kforge", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env=ENV | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )


def last_object(text: str) -> dict[str, Any]:
    """The last line of stdout as an object."""
    value = json.loads(text.splitlines()[-1])
    assert isinstance(value, dict)
    return value
