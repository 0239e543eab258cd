"""The first hour of somebody new: keys typed ahead, rules said early, keys that cannot act, leaving, coming back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual import events

from kforge.config import Config
from kforge.ui.app import KforgeApp
from kforge.ui.dialogs.accept import accept_text
from kforge.ui.panes.glyphs import UNICODE
from kforge.ui.progress import Progress
from kforge.ui.serving.session import CoreSession
from kforge.ui.steer import Chip, SteerInput
from tests.ui.corepipe import CorePipe
from tests.ui.driving import driven, on_screen, until
from tests.ui.test_app import ran
from tests.ui.test_server import SMALL


def burst(app: KforgeApp, *keys: str) -> None:
    """Keys as a terminal sends them when somebody types ahead: all before any is handled."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else "\r" if key == "enter" else None))


def test_keys_typed_ahead_follow_the_focus(op: Path) -> None:
    """What is typed behind ctrl-g, ctrl-f, alt-0 and a pane's key arrives there, and never in the file."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        steer, find = app.query_one(SteerInput), app.query_one("#find")
        buffer = app.desk.editor.buffer("softmax.py")
        before = buffer.text
        burst(app, "ctrl+g", *"abc")
        await until(pilot, lambda: steer.value == "abc")
        burst(app, "ctrl+f", *"tanh", "enter", "escape", "ctrl+g", *"def")
        await until(pilot, lambda: steer.value == "abcdef")
        assert find.value == "tanh" and not find.display and app.focused is steer and buffer.text == before
        burst(app, "alt+1", *"x", "alt+0", "y")
        await until(pilot, lambda: buffer.text != before)
        assert len(buffer.text) == len(before) + 1 and steer.value == "abcdef"

    driven(op, act)


def test_a_key_after_the_last_screen_is_nobodys(op: Path) -> None:
    """What is typed while the app ends does not end it with a traceback."""
    ended: list[KforgeApp] = []

    async def act(app: KforgeApp, pilot: Any) -> None:
        ended.append(app)

    driven(op, act)
    assert asyncio.run(ended[0]._check_bindings("x")) is False


def test_a_rule_said_before_the_run(tmp_path: Path) -> None:
    """Words that hold rules are standing rules at once; the run that comes checks them; dropping them releases."""
    op = tmp_path / "small.py"
    op.write_text(SMALL)
    with CorePipe(op) as core:
        core.ask("open", op=str(op))
        core.ask("steer", text="no fast-math, and at most 48 KB of shared memory")
        rules = [data["name"] for kind, data in core.events if kind == "constraint"]
        assert rules == ["no_fast_math", "max_shared=49152"]
        assert [row["name"] for row in core.ask("open", op=str(op))["rules"]] == rules
        core.ask("steer_edit", steer=1, text="no fast-math")
        assert core.ask("open", op=str(op))["rules"] == [{"name": "no_fast_math", "origin": "steer 1"}]
        core.ask("release", name="no_fast_math")
        assert core.ask("open", op=str(op))["rules"] == []


def test_rules_of_one_run_stand_in_the_next(tmp_path: Path) -> None:
    """A rule that came up during a run is kept by the session; one that was released there is not."""
    session = CoreSession(tmp_path / "small.py", Config(state=tmp_path), lambda kind, data, run: None, dict)
    constraint = {"name": "max_shared=1024", "action": "added", "origin": "steer 9"}
    session.emit("constraint", constraint)
    session.emit("constraint", {**constraint, "name": "max_shared=2048"})
    assert session.rules == {"max_shared=2048": "steer 9"}
    session.control.drop(session.control.steer("keep NaN").id)
    assert session.rules == {"max_shared=2048": "steer 9"}
    session.emit("constraint", {**constraint, "action": "removed"})
    assert session.rules == {}


def test_rules_outlive_their_core(op: Path) -> None:
    """A core that dies takes no rule with it: the next run's core hears of them first."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        assert await app.ask("constrain", text="no_fast_math") is not None
        await until(pilot, lambda: "no_fast_math" in [c.rule for c in app.query(Chip)])
        await app.ask("profile", candidate="0" * 16)
        await until(pilot, lambda: not app.core.alive)
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.status == "verified" and not app.core.busy)
        found = await app.ask("open", op=str(op))
        assert "no_fast_math" in [row["name"] for row in found["rules"]]

    driven(op, act, crash="profile")


def test_keys_that_cannot_act_say_why(op: Path) -> None:
    """F4 and F10 without a candidate, F10 before the accept and F4 after it say what to do."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        for key in ("f4", "f10"):
            app.bar.notice("")
            await pilot.press(key)
            await until(pilot, lambda: app.bar.noticed == "there is no candidate yet: F2 looks for one")
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        await pilot.press("f10")
        await until(pilot, lambda: app.bar.noticed == "accept it first: F4")
        await app.core.request("accept", candidate=app.candidate)
        await pilot.press("f4")
        await until(pilot, lambda: "it is accepted already: F10 exports it" in app.bar.noticed)

    driven(op, act)


def test_opening_what_was_accepted(op: Path) -> None:
    """The timeline says what an earlier session has left, and F10 exports what it accepted."""
    op.with_name("softmax_kforge.py").write_text("")

    async def act(app: KforgeApp, pilot: Any) -> None:
        await until(pilot, lambda: "last run: " in on_screen(app))
        words = [entry.words for entry in app.desk.panes["timeline"].list.entries]
        assert "last run: interrupted, untimed; /resume shows it" in words
        assert "accepted: F10 exports it, /undo takes it back (softmax_kforge.py)" in words
        await pilot.press("f10")
        await until(pilot, lambda: type(app.screen).__name__ == "ExportScreen")

    driven(op, act, accepted=True, size=(160, 40))


def test_leaving_during_work_asks_once(op: Path) -> None:
    """The first ctrl-q during a run says so; the second one leaves."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: app.core.busy == "run")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app.bar.noticed == "run is under way: ctrl+q again leaves and ends it")
        app._on_core("message", {"text": "step 2"})
        assert app.is_running and app.core.busy and "ctrl+q again" in app.bar.noticed
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app.return_code == 0 and not app._running)

    driven(op, act, pause=0.2)


def test_nothing_stale_after_a_stop(op: Path) -> None:
    """A stopped attempt is stopped, and the status line names nothing that is over."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.candidate)
        timeline = app.desk.panes["timeline"]
        attempt = timeline.attempt(app.progress.candidate)
        await pilot.press("f2")
        await until(pilot, lambda: not app.core.busy and not attempt.stage)
        assert attempt.status == "stopped" and "stopped" in attempt.title(80, UNICODE).plain
        app._on_core("gate", {"candidate": attempt.digest, "name": "performance", "passed": None})
        await until(pilot, lambda: "timing" not in app.progress.text())

    driven(op, act, pause=0.3)


def test_a_file_that_is_no_task_is_not_starting(op: Path) -> None:
    """The status line says that there is no task, until there is one."""
    op.write_text("# not a task\n")

    async def act(app: KforgeApp, pilot: Any) -> None:
        await until(pilot, lambda: "no task" in app.progress.text())
        op.write_text("class Model: ...\n")
        await app._open()
        assert "no task" not in app.progress.text() and "emulator" in app.progress.text()

    driven(op, act)
    assert "starting" in Progress().text()


def test_the_gate_after_honesty_is_not_the_clock(op: Path) -> None:
    """An attempt is not said to be timed while its memory accesses are checked."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        digest = "a" * 16
        app._on_core("proposed", {"candidate": digest})
        attempt = app.desk.panes["timeline"].attempt(digest)
        stages = []
        for name in ("static", "build", "correctness", "honesty", "memory"):
            app._on_core("gate", {"candidate": digest, "name": name, "passed": True})
            stages.append(attempt.stage)
        assert stages == ["building", "correctness", "honesty", "memory", "timing"]

    driven(op, act)


@pytest.mark.parametrize("verified", [True, False])
def test_files_before_what_was_not_tested(tmp_path: Path, verified: bool) -> None:
    """The accept dialog names the files before anything that may not fit a small terminal."""
    evidence = {"report": {"status": "verified", "verdict": "untimed", "plan": "quick", "target": "emulator"}}
    evidence |= {"verified": verified, "folder": str(tmp_path), "files": ["a.py"], "candidate": "a" * 16}
    lines = [line.plain for line in accept_text(evidence, UNICODE)]
    at = next(n for n, line in enumerate(lines) if line.endswith("a.py  new"))
    assert at < 6 and all("Not tested" not in line for line in lines[:at])
