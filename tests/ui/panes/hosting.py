"""An app around one pane, events recorded by real runs on the emulator, and two small versions of a kernel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.widget import Widget

RECORDED = Path(__file__).parent / "recorded"
HOSTILE = (
    "tile[threadIdx.x] = v[/]; [b]bold[/b] [@click=app.quit]x[/] $text \x1b[2J\x1b]52;c;aGk=\x07\x00\x08\r"
    "\u202eevil\u2028\u200b \U0001f9ea 漢字 e\u0301\ttab " + "x" * 5_000
)


class Host(App[None]):
    """Holds a widget and keeps the messages and copies that come from it."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.said: list[Message] = []
        self.copied: list[str] = []

    def compose(self) -> ComposeResult:
        yield self.widget

    def copy_to_clipboard(self, text: str) -> None:
        self.copied.append(text)

    def get(self, kind: type[Message]) -> list[Any]:
        """Messages of a kind, oldest first."""
        return [message for message in self.said if type(message) is kind]

    def hear(self, message: Message) -> None:
        """Keep a pane's message: each passes several widgets on its way up."""
        if type(message).__module__.startswith("kforge.ui") and message not in self.said:
            self.said.append(message)


def hosted(
    widget: Widget, act: Callable[[Host, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (100, 30)
) -> Host:
    """Run an app with this widget, focused, and act on it."""
    host = Host(widget)

    async def run() -> None:
        async with host.run_test(size=size, message_hook=host.hear) as pilot:
            widget.focus()
            await pilot.pause()
            await act(host, pilot)

    asyncio.run(run())
    return host


def recorded(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a run that was recorded on the emulator (paths and the many cases left out)."""
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    return [(row["event"], row["data"]) for row in map(json.loads, lines)]


def profile() -> dict[str, Any]:
    """The profile of the recorded run's candidate, taken on the emulator."""
    found: dict[str, Any] = json.loads((RECORDED / "softmax_profile.json").read_text())
    return found


def play(pane: Any, events: list[tuple[str, dict[str, Any]]]) -> None:
    """Hand events to a pane."""
    for kind, data in events:
        pane.on_core_event(kind, data)


def shown(view: Any) -> list[str]:
    """The text of every row of a list of rows."""
    view.settle()
    return [view.row(i).plain for i in range(view.count)]


def on_screen(host: Host) -> str:
    """What the terminal shows."""
    widget = host.screen
    return "\n".join("".join(segment.text for segment in strip) for strip in widget._compositor.render_strips())


def proposed(number: int, **more: Any) -> tuple[str, Mapping[str, Any]]:
    """An event that proposes attempt `number`."""
    data = {
        "candidate": f"{number:016x}",
        "node": number,
        "parent_node": 0,
        "proposer": "engine",
        "idea": f"idea {number}",
    }
    return "proposed", data | more
