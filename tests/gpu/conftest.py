"""Shorter plans for the GPU tests: all required cases, and two seconds of extras where a user waits for 20."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

EXTRA_S = 2.0


@pytest.fixture(autouse=True)
def short_plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`evaluate` with the same plans and less time for their extra cases."""
    from kforge.environment import evaluation

    whole = evaluation.make_plan

    def shorter(*args: Any, **kwargs: Any) -> Any:
        return replace(whole(*args, **kwargs), gpu_seconds=EXTRA_S)

    monkeypatch.setattr(evaluation, "make_plan", shorter)
    yield
