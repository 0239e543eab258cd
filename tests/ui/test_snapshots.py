"""The main screens as they look, at two sizes. KFORGE_SNAPSHOTS=write makes them anew: look at them afterwards."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import textual

from kforge.ui.app import KforgeApp
from tests.ui.driving import driven, until

SNAPSHOTS = Path(__file__).with_name("snapshots")
MADE_WITH = "8.2.8"  # of textual: another one may draw the same screen by other marks
SIZES = [(130, 40), (80, 24)]
LOOKS = 60  # until it is drawn as it was, half a second apart


def stable(svg: str) -> str:
    """An exported picture without what changes from run to run: its identifier, the temporary folder's name."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    svg = re.sub(r"(&#160;in&#160;)/[^<]*", r"\1FOLDER", svg)
    return re.sub(r"\s+\n", "\n", svg)


def words(svg: str) -> list[str]:
    """The text of a picture, piece by piece, for a message that can be read."""
    return re.findall(r">([^<>]+)</text>", svg)


async def run(app: KforgeApp, pilot: Any) -> None:
    await pilot.press("f2")
    await until(pilot, lambda: not app.core.busy and len([b for b in app.desk.editor.buffers if b.path]) == 3)


async def timeline(app: KforgeApp, pilot: Any) -> None:
    await pilot.press("alt+1")


async def diff(app: KforgeApp, pilot: Any) -> None:
    await pilot.press("f8")
    await until(pilot, lambda: app.desk.panes["diff"].model is not None)


async def gutter(app: KforgeApp, pilot: Any) -> None:
    await pilot.press("f9")
    await until(pilot, lambda: app.desk.editor.buffer("softmax_kforge.cu").figures.values and not app.core.busy)
    await pilot.press("alt+0")
    app.desk.editor.activate(app.desk.editor.buffer("softmax_kforge.cu"))
    app.desk.editor.focus_text()


async def help(app: KforgeApp, pilot: Any) -> None:
    await pilot.press("alt+0", "f1")
    await until(pilot, lambda: len(app.screen_stack) > 1)


SCREENS = {f.__name__: f for f in (timeline, diff, gutter, help)}


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", SCREENS)
def test_screen(op: Path, name: str, size: tuple[int, int]) -> None:
    """The screen is drawn as it was when somebody looked at it last."""
    if textual.__version__ != MADE_WITH:
        pytest.skip(f"the pictures were made with textual {MADE_WITH}, this is {textual.__version__}")
    taken: list[str] = []

    async def act(app: KforgeApp, pilot: Any) -> None:
        app.animation_level = "none"
        await run(app, pilot)
        for buffer in app.desk.editor.buffers:
            buffer.cursor_blink = False
        app.bar.notice("", stay=True)
        await SCREENS[name](app, pilot)
        app.bar.notice("", stay=True)
        for _ in range(LOOKS):
            await pilot.pause(0.5)
            taken[:] = [stable(app.export_screenshot())]
            if path.exists() and taken[0] == stable(path.read_text()):
                break

    path = SNAPSHOTS / f"{name}-{size[0]}x{size[1]}.svg"
    driven(op, act, size=size)
    if os.environ.get("KFORGE_SNAPSHOTS") == "write":
        SNAPSHOTS.mkdir(exist_ok=True)
        path.write_text(taken[0])
    assert words(taken[0]) == words(stable(path.read_text()))
    assert taken[0] == stable(path.read_text()), f"{path.name}: the same words, in other colours or places"
