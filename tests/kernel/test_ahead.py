"""The emulator's own parts, compiled beside other work."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from kforge.kernel.emulator import ahead
from kforge.kernel.emulator.ahead import compiled_ahead
from kforge.kernel.emulator.build import has_prelude
from kforge.kernel.emulator.mode import Kind
from tests.patience import PATIENCE_S


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The emulator's folder in a cache in which nothing is."""
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path))
    return tmp_path / "emulator"


def test_what_is_missing_is_compiled(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runtime and headers are there in time without anybody asking for them; where they are, no process is started."""
    with compiled_ahead([Kind.FAST]):
        end = time.monotonic() + PATIENCE_S
        while not has_prelude(Kind.FAST):
            assert time.monotonic() < end
            time.sleep(0.05)
    assert list(empty.glob("kforge_emulator-*/libkforge_emulator.so"))
    monkeypatch.setattr(ahead.subprocess, "Popen", None)  # it would be called
    with compiled_ahead([Kind.FAST]):
        pass


def test_nothing_is_left_where_the_work_ends_first(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is in the middle of it ends, and what it has half compiled goes with it."""
    started: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    def kept(*args: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(begin(*args, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(ahead.subprocess, "Popen", kept)
    with compiled_ahead(list(Kind)):
        end = time.monotonic() + PATIENCE_S
        while not list(empty.glob(".*/*.cpp")):  # the first compilation has begun
            assert time.monotonic() < end
            time.sleep(0.01)
    assert started[0].returncode is not None
    assert not has_prelude(Kind.TRACED) and not list(empty.glob(".*"))
