"""Dialogs: the evidence stands before the question, keys answer it, and what may not be written cannot be chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Button, Checkbox, Input, RadioSet

from kforge.export.formats import FORMATS
from kforge.ui.dialogs import AcceptScreen, ExportScreen
from kforge.ui.dialogs.accept import accept_text
from kforge.ui.panes.glyphs import UNICODE
from tests.ui.panes.hosting import HOSTILE, recorded


def _evidence(name: str = "softmax_run", **more: Any) -> dict[str, Any]:
    """The core's answer to `evidence`, of a recorded run."""
    report = [data["report"] for kind, data in recorded(name) if kind == "evaluated"][-1]
    verified = report["status"] == "verified"
    return {
        "candidate": report["candidate"], "report": report, "verified": verified, "warnings": [],
        "problem": "" if verified else f"its status is {report['status']}", "stamps": ["EMULATOR ONLY", "UNTIMED"],
        "folder": "/project", "files": ["softmax_kforge.cu", "softmax_kforge.py"],
    } | more  # fmt: skip


class _Asking(App[None]):
    def __init__(self, screen: ModalScreen[Any]) -> None:
        super().__init__()
        self.asked = screen
        self.answers: list[Any] = []

    def on_mount(self) -> None:
        self.push_screen(self.asked, self.answers.append)


def _ask(
    screen: ModalScreen[Any], act: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (130, 40)
) -> list[Any]:
    app = _Asking(screen)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await act(pilot)
            await pilot.pause()

    asyncio.run(run())
    return app.answers


def _press(*keys: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.press(*keys)

    return act


def test_the_evidence_names_everything(tmp_path: Path) -> None:
    """Status, verdict, plan, error, gates, what was not tested, and each file with whether it replaces one."""
    (tmp_path / "softmax_kforge.py").write_text("old")
    lines = [line.plain for line in accept_text(_evidence(folder=str(tmp_path), warnings=["plan standard"]), UNICODE)]
    text = "\n".join(lines)
    assert lines[0].startswith("VERIFIED UNTIMED on emulator, plan standard")
    assert "RMS, 0.981x the baseline's of 2x allowed" in text
    assert "warning: plan standard" in text and "✓ correctness" in text and "Not tested" in text
    assert f"Written to {tmp_path} (op.py stays as it is):" in lines
    at = lines.index("→ softmax_kforge.cu  new")
    assert lines[at + 1] == "→ softmax_kforge.py  replaces the one that is there; u takes it back"
    assert at < lines.index("Not tested")
    domain = ["judged on sizes x 0..7 x 1024", "for other sizes add them"]
    told = [line.plain for line in accept_text(_evidence(domain=domain), UNICODE)]
    assert told[told.index(domain[0]) + 1] == domain[1]


@pytest.mark.parametrize(
    ("keys", "answer"), [(("a",), True), (("y",), True), (("enter",), True), (("escape",), False), (("n",), False),
                         (("tab", "enter"), False), (("down", "j", "k", "pagedown", "up", "a"), True)],
)  # fmt: skip
def test_accept_answers(keys: tuple[str, ...], answer: bool) -> None:
    """a, y and enter accept, escape and n do not, tab goes to the other button."""
    assert _ask(AcceptScreen(_evidence()), _press(*keys)) == [answer]


def test_what_is_not_verified_cannot_be_accepted() -> None:
    """A wrong candidate's dialog says so, its button is off, and no key accepts."""

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("a", "y")
        assert pilot.app.screen.query_one("#accept-yes", Button).disabled
        assert pilot.app.focused is pilot.app.screen.query_one("#accept-no", Button)
        await pilot.press("enter")

    evidence = _evidence("wrong")
    assert _ask(AcceptScreen(evidence), act) == [False]
    text = "\n".join(line.plain for line in accept_text(evidence, UNICODE))
    assert "its status is wrong" in text and "cannot be accepted" in text


def test_export_returns_what_was_chosen() -> None:
    """Folder, format, package name and whether it is built, as the core's `export` takes them."""

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("shift+tab", "down", "down", "enter")  # the formats stand before the folder
        await pilot.press("tab", "end", *"_2", "tab", *"fast_softmax", "tab", "space", "ctrl+s")

    assert _ask(ExportScreen(_evidence(), default="out"), act) == [
        {"to": "out_2", "format": list(FORMATS)[2], "name": "fast_softmax", "force": False, "build": False}
    ]


@pytest.mark.parametrize("formats", [["triton"], [name for name in FORMATS if name != "triton"]])
def test_formats_of_the_candidate_are_offered(formats: list[str]) -> None:
    """Only what the candidate can leave in is offered, the first is ticked, and every label is whole at 80 columns."""

    async def act(pilot: Pilot[None]) -> None:
        lines = [strip.text for strip in pilot.app.screen._compositor.render_strips()]
        for name, about in FORMATS.items():
            assert any(f"{name}: {about}" in line for line in lines) == (name in formats)
        assert any("judged on sizes x 0..7 x 1024; other calls" in line for line in lines)
        await pilot.press("ctrl+s")

    evidence = _evidence(formats=formats, domain=["judged on sizes x 0..7 x 1024"])
    (answer,) = _ask(ExportScreen(evidence, default="out"), act, (80, 24))
    assert answer["format"] == formats[0]


def test_export_by_enter_and_back() -> None:
    """Enter in the folder's field exports with the defaults; escape and the button go back."""
    plain = {"to": "out", "format": "extension", "name": "", "force": False, "build": True}
    assert _ask(ExportScreen(_evidence(), default="out"), _press("enter")) == [plain]
    assert _ask(ExportScreen(_evidence(), default="out"), _press("escape")) == [None]


def test_export_says_what_is_missing() -> None:
    """No folder, a bad name, and a candidate with a problem are each said; nothing is returned before."""

    async def act(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        said = screen.query_one("#export-said")
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert "needs a folder" in str(said.render()) and pilot.app.focused is screen.query_one("#export-to")
        screen.query_one("#export-to", Input).value = "out"
        screen.query_one("#export-name", Input).value = "Fast-Softmax"
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert "lower-case" in str(said.render())
        screen.query_one("#export-name", Input).value = ""
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert "its status is wrong" in str(said.render())
        assert pilot.app.focused is screen.query_one("#export-force", Checkbox)
        await pilot.press("space", "ctrl+s")

    (answer,) = _ask(ExportScreen(_evidence("wrong")), act)
    assert answer["force"] is True and answer["to"] == "out"


def test_the_stamp_is_shown() -> None:
    """The stamps that the package will carry stand in the dialog; a FASTER one of a GPU carries none."""

    async def stamped(pilot: Pilot[None]) -> None:
        assert "stamp: EMULATOR ONLY, UNTIMED" in str(pilot.app.screen.query_one("#export-stamp").render())
        assert not pilot.app.screen.query_one("#export-force").display

    async def plain(pilot: Pilot[None]) -> None:
        assert "no stamp" in str(pilot.app.screen.query_one("#export-stamp").render())

    _ask(ExportScreen(_evidence()), stamped)
    _ask(ExportScreen(_evidence(stamps=[])), plain)


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
@pytest.mark.parametrize("kind", [AcceptScreen, ExportScreen])
def test_dialogs_fit(kind: Any, size: tuple[int, int]) -> None:
    """Buttons are on the screen at every size, whatever hostile words the evidence has."""
    report = dict(_evidence()["report"]) | {"target": HOSTILE, "precision_class": HOSTILE, "warnings": [HOSTILE]}
    evidence = _evidence(report=report, folder=HOSTILE, files=[HOSTILE], stamps=[HOSTILE], warnings=[HOSTILE])

    async def act(pilot: Pilot[None]) -> None:
        for button in pilot.app.screen.query(Button):
            assert pilot.app.screen.region.contains_region(button.region) and button.region.height == 1
        if kind is ExportScreen:
            assert pilot.app.screen.query_one(RadioSet).region.height == len(FORMATS)
        await pilot.press("escape")

    assert _ask(kind(evidence), act, size) in ([False], [None])
