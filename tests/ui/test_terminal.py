"""Terminals: tiny ones, ASCII ones, and what they send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.widgets._tabs import Underline

from kforge.ui.actions import ACTIONS
from kforge.ui.app import KforgeApp
from kforge.ui.terminal import take_alt_digits, take_any_bytes
from tests.ui.driving import driven, until
from tests.ui.test_app import ran


def test_ascii_terminal(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With KFORGE_ASCII the whole screen is ASCII, frames, bars and signs included."""
    monkeypatch.setenv("KFORGE_ASCII", "1")

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        for key in ("f8", "f9", "alt+2", "f1"):
            await pilot.press(key)
            await pilot.pause(0.1)
            drawn = [
                segment.text
                for strip in app.screen._compositor.render_strips()
                for segment in strip.apply_filter(app._filters[-1], app.screen.background_colors[1])
            ]
            odd = {c for text in drawn for c in text if not c.isascii()}
            assert not odd, (key, odd)

    driven(op, act)


def test_bytes_that_are_no_text(op: Path) -> None:
    """A terminal that sends Latin-1 does not end the reading of keys: Textual's decoder takes what we put there."""
    from textual.drivers import linux_driver

    before = linux_driver.getincrementaldecoder
    assert "getincrementaldecoder" in linux_driver.LinuxDriver.run_input_thread.__code__.co_names
    try:
        take_any_bytes()
        decode = linux_driver.getincrementaldecoder("utf-8")().decode
        assert decode(b"caf\xe9!", final=False) + decode(b"\xc3") + decode(b"\xa9") == "caf\ufffd!\u00e9"
    finally:
        linux_driver.getincrementaldecoder = before


def test_from_large_to_tiny_and_back(op: Path) -> None:
    """The terminal changes its size while a run streams; nothing breaks, and the panes are there again."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        for width, height in ((200, 60), (20, 5), (1, 1), (99, 3)):
            await pilot.resize_terminal(width, height)
            for pane in (*app.desk.panes, "editor"):
                app.desk.show(pane, focus=True)
                await pilot.pause()
        await until(pilot, lambda: not app.core.busy)
        await pilot.press("f1")
        await pilot.resize_terminal(20, 5)
        await pilot.press("escape")
        await pilot.resize_terminal(130, 40)
        await until(pilot, lambda: app.desk.panes["log"].region.width > 20 and app.desk.editor.region.width > 20)
        lit = app.query_one("#pane-tabs").query_one(Underline)
        await until(pilot, lambda: lit.highlight_end - lit.highlight_start >= 3 and lit.highlight_start > 20)

    driven(op, act, pause=0.01)


@pytest.mark.parametrize("key", sorted({a.key for a in ACTIONS.values() if a.key.startswith("alt+")}))
def test_alt_keys_reach_their_actions(key: str) -> None:
    """What a terminal sends for alt and a letter or digit is that key: no character of a Mac's, no move by a word."""
    take_alt_digits()
    parser = XTermParser()
    sent = [e.key for e in (*parser.feed(f"\x1b{key[4:]}"), *parser.feed("")) if isinstance(e, events.Key)]
    assert sent == [key]
