"""Limits on launches that the process is under: the judge sets them for a candidate's by environment variables."""

from __future__ import annotations

import os

from kforge.errors import LaunchError

MAX_SHARED = "KFORGE_MAX_SHARED"  # bytes of shared memory a block, static and dynamic


def check_shared(name: str, dynamic: int, static: int = 0) -> None:
    """LaunchError where a block of this kernel takes more than the limit, if there is one."""
    limit = os.environ.get(MAX_SHARED)
    if limit and dynamic + static > int(limit):
        parts = f" ({static} static, {dynamic} dynamic)" if static else ""
        raise LaunchError(f"{name} uses {dynamic + static} bytes of shared memory{parts}, max_shared is {limit}")
