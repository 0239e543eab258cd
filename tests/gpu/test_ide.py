"""The IDE over the real core on a GPU: from an op.py to an accepted kernel with a timed verdict and its profile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kforge.ui.app import KforgeApp
from tests.ui.driving import driven, on_screen, until

pytestmark = pytest.mark.gpu

OP = """
import torch


def reference(x):
    return torch.softmax(x * 0.5, -1)


def get_inputs():
    return [torch.randn(16384, 4096)]
"""


def test_from_open_to_accepted_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times and intervals stand in the evidence, counters in the profile; a stop in a second run ends it in time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KFORGE_PLAN", "quick")
    monkeypatch.setenv("KFORGE_BUDGET", "15s")
    monkeypatch.setenv("TERM", "xterm-256color")
    op = tmp_path / "halves.py"
    op.write_text(OP)

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.reports and not app.core.busy, 150)
        report = app.progress.reports[app.candidate]
        assert report["status"] == "verified" and report["verdict"] != "untimed"  # which one, a shared GPU decides too
        low, high = report["speedup"]["ci95"]
        assert 0.5 < low <= high and report["times_ms"]["candidate"] > 0.05
        profile = await app.core.request("profile", candidate=app.candidate)
        assert profile["roofline"]["bound"] == "memory" and len(profile["findings"]) <= 3
        assert profile["lines"]
        await pilot.press("f4")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        shown = on_screen(app)
        assert "VERIFIED" in shown and report["target"] in shown and report["target"] != "emulator"
        await pilot.press("a")
        await until(pilot, lambda: (tmp_path / "halves_kforge.cu").is_file() and not app.core.busy)
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("f2")
        await until(pilot, lambda: app.core.busy and "▶" in app.progress.text(), 60)
        began = time.monotonic()
        await pilot.press("f2")
        await until(pilot, lambda: not app.core.busy, 20)
        assert time.monotonic() - began < 5.0  # a second where nothing else runs (test_sessions.py)

    driven(op, act, real=True)
