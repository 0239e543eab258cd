"""The IDE in a test: an app over a scripted or the real core, acted on through Pilot, and read back as text."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from kforge.ui.app import KforgeApp
from kforge.ui.core import Core
from kforge.ui.settings import Settings
from tests.patience import PATIENCE_S

SCRIPTED = Path(__file__).with_name("scripted_core.py")
Act = Callable[[KforgeApp, Pilot[int]], Awaitable[None]]


def driven(
    op: Path,
    act: Act,
    size: tuple[int, int] = (130, 40),
    settings: Settings | None = None,
    real: bool = False,
    **options: Any,
) -> KforgeApp:
    """Open the IDE on `op`, act on it, close it. options: of the scripted core."""
    command = () if real else (sys.executable, str(SCRIPTED), str(op), json.dumps(options))
    app = KforgeApp(op, settings or Settings(), Core(op, command=command))

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: bool(app.session) or bool(app.bar.noticed))
            await act(app, pilot)

    asyncio.run(run())
    return app


async def until(pilot: Pilot[int], true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is so; AssertionError when it is not in time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not so within {seconds:g} s\n{on_screen(pilot.app)}"
        await pilot.pause(0.02)


async def type_text(pilot: Pilot[int], text: str) -> None:
    """Press the keys of a text."""
    names = {
        " ": "space",
        "/": "slash",
        "@": "at",
        "#": "number_sign",
        "-": "minus",
        ".": "full_stop",
        "_": "underscore",
    }
    await pilot.press(*(names.get(c, c) for c in text))


def on_screen(app: Any) -> str:
    """What the terminal shows."""
    return "\n".join("".join(s.text for s in strip).rstrip() for strip in app.screen._compositor.render_strips())


def requests(log: Path, do: str) -> list[dict[str, Any]]:
    """What the scripted core was asked for, by its log."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [row for row in rows if row["do"] == do]
