"""What all tests share: GPU tests are skipped, with the reason, where there is no GPU; no test writes to ~/.cache."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@functools.lru_cache(maxsize=1)
def _why_no_gpu() -> str:
    """Why GPU tests cannot run here; empty where they can."""
    import torch

    if torch.version.cuda is None:
        return "needs a GPU: torch is a CPU build"
    return "" if torch.cuda.is_available() else "needs a GPU: torch finds none it can use"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what is marked gpu; torch is imported only when such a test comes up."""
    if item.get_closest_marker("gpu") and _why_no_gpu():
        pytest.skip(_why_no_gpu())


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Builds and ceilings of a test run go to a folder of its own, unless KFORGE_CACHE names one.

    The workers of pytest-xdist share it: each compiler's work is done once.
    """
    own = tmp_path_factory.getbasetemp()
    cache = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kforge-cache"
    cache.mkdir(exist_ok=True)
    os.environ.setdefault("KFORGE_CACHE", str(cache))


@pytest.fixture
def root() -> Path:
    """The root of the checkout."""
    return ROOT
