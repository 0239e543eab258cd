"""Fixtures of this folder; they live in a module of their own so that tests/redteam can use them too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conftest_environment import judge, prepared, zygote

__all__ = ["judge", "prepared", "zygote"]
