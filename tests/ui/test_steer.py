"""The steer bar: now and queued, edited, dropped, never lost; rules as chips; slash commands; attached lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kforge.errors import UsageError
from kforge.ui import slash
from kforge.ui.app import KforgeApp
from kforge.ui.steer import Chip, SteerInput, WaitingLine
from tests.agent.scripted_model import ScriptedModel, calls, repeat, tool
from tests.ui.driving import driven, requests, type_text, until


def test_now_and_queued_text_waits_in_sight(op: Path, tmp_path: Path) -> None:
    """Enter says it now, ctrl+t later; what waits is shown, can be edited and dropped, and goes when it is taken."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("ctrl+g")
        await type_text(pilot, "wider loads")
        await pilot.press("enter")
        await type_text(pilot, "smaller tiles")
        await pilot.press("ctrl+t")
        both = [("wider loads", "now"), ("smaller tiles", "queued")]
        await until(pilot, lambda: [(w.text, w.when) for w in app.bar.waiting] == both)
        await until(pilot, lambda: len(app.query(WaitingLine)) == 2)
        app.query(WaitingLine).last().focus()
        await pilot.press("enter")
        line = app.query_one(SteerInput)
        assert line.value == "smaller tiles" and app.focused is line
        await type_text(pilot, " please")
        await pilot.press("enter")
        await until(pilot, lambda: app.bar.waiting[-1].text == "smaller tiles please")
        assert requests(log, "steer_edit")[0]["steer"] == 2
        await until(pilot, lambda: len(app.query(WaitingLine)) == 2)
        app.query(WaitingLine).first().focus()
        await pilot.press("delete")
        await until(pilot, lambda: [w.text for w in app.bar.waiting] == ["smaller tiles please"])
        await pilot.press("f2")
        await until(pilot, lambda: not app.bar.waiting)

    driven(op, act, log=str(log))


def test_words_survive_a_dead_core(op: Path, tmp_path: Path) -> None:
    """What waits when the core dies is handed to the next one before it runs."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot: Any) -> None:
        await app.ask("steer", text="no atomics", when="queued")
        await until(pilot, lambda: app.bar.waiting)
        app.candidate = "0123456789abcdef"
        await pilot.press("f9")
        await until(pilot, lambda: not app.core.alive)
        assert [(w.id, w.text) for w in app.bar.waiting] == [(-1, "no atomics")]
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.status == "verified")
        assert [row["text"] for row in requests(log, "steer")] == ["no atomics"] * 2 and not app.bar.waiting

    driven(op, act, log=str(log), crash="profile")


def test_history_keeps_what_was_being_typed(op: Path) -> None:
    """Up goes back through what was said; the line that was being typed comes back with down."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("ctrl+g")
        await type_text(pilot, "first")
        await pilot.press("enter")
        await type_text(pilot, "half")
        line = app.query_one(SteerInput)
        await pilot.press("up")
        assert line.value == "first"
        await pilot.press("down")
        assert line.value == "half"

    driven(op, act)


def test_rules_are_chips(op: Path, tmp_path: Path) -> None:
    """A rule that is added appears as a chip; delete on it releases it; op.py's own stays."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot: Any) -> None:
        assert [(c.rule, c.removable) for c in app.query(Chip)] == [("keep_nan", False)]
        await pilot.press("ctrl+g")
        app.query_one(SteerInput).value = "/constraint max_shared=49152"
        await pilot.press("enter")
        await until(pilot, lambda: [c.rule for c in app.query(Chip)] == ["keep_nan", "max_shared=49152"])
        app.query(Chip).first().focus()
        await pilot.press("delete")
        app.query(Chip).last().focus()
        await pilot.press("delete")
        await until(pilot, lambda: [c.rule for c in app.query(Chip)] == ["keep_nan"])
        assert [row["name"] for row in requests(log, "release")] == ["max_shared=49152"]

    driven(op, act, log=str(log))


def test_slash_commands(op: Path, tmp_path: Path) -> None:
    """Every command does what it says; an unknown one stays in the input with a guess."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot: Any) -> None:
        async def say(words: str) -> None:
            app.query_one(SteerInput).value = words
            app.query_one(SteerInput).focus()
            await pilot.press("enter")
            await pilot.pause()

        await say("/modle x")
        await until(pilot, lambda: "did you mean /model?" in app.bar.noticed)
        assert app.query_one(SteerInput).value == "/modle x"
        await say("/model gpt-x")
        await say("/budget 90s $0.50")
        await until(pilot, lambda: "90 s, $0.50" in app.bar.noticed)
        await say("/budget soon")
        await until(pilot, lambda: "/budget needs" in app.bar.noticed)
        await say("/run greedy")
        await until(pilot, lambda: app.progress.status == "verified" and not app.core.busy)
        asked = requests(log, "run")[0]
        assert (asked["model"], asked["budget"], asked["usd"], asked["search"]) == ("gpt-x", 90.0, 0.5, "greedy")
        await say("/diff")
        await until(pilot, lambda: app.desk.focused_pane == "diff")
        await say("/profile")
        await until(pilot, lambda: requests(log, "profile"))
        await until(pilot, lambda: not app.core.busy)
        await say("/reject wrong tail")
        await until(pilot, lambda: requests(log, "steer"))
        assert "wrong tail" in requests(log, "steer")[0]["text"]
        for words, screen in (("/accept", "AcceptScreen"), ("/help", "HelpScreen"), ("/resume", "SessionScreen")):
            await say(words)
            await until(pilot, lambda screen=screen: type(app.screen).__name__ == screen)
            await pilot.press("escape")
            await until(pilot, lambda: len(app.screen_stack) == 1 and not app.core.busy)
        await say("/baseline")
        await until(pilot, lambda: "needs a GPU" in app.bar.noticed)
        await say("/undo")
        await until(pilot, lambda: "no accept to undo" in app.bar.noticed)
        await say("/stop")
        assert not app.core.busy

    driven(op, act, log=str(log))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("/run", ("run", "")),
        ("/constraint no fast-math", ("constraint", "no fast-math")),
        ("/tmp/x.py is slow", None),
        ("// not a command", None),
        ("use float4", None),
    ],
)
def test_what_is_a_command(words: str, meant: tuple[str, str] | None) -> None:
    """Words, paths and comments are no commands."""
    assert slash.parse(words) == meant


@pytest.mark.parametrize("words", ["/reject", "/constraint ", "/nothing", "/nothing/help", "/nothingmore words"])
def test_commands_that_cannot_be_read(words: str) -> None:
    """A missing argument and an unknown name are said."""
    with pytest.raises(UsageError):
        slash.parse(words)


def test_attached_lines(tmp_path: Path) -> None:
    """@file#2-3 adds these lines, as the editor has them; what is not there is said; an address is left alone."""
    (tmp_path / "a.cu").write_text("one\ntwo\nthree\nfour\n")
    read = slash.reader(tmp_path, lambda: {"op.py": "edited\n"})
    assert (
        slash.attach("see @a.cu#2-3, please", read) == "see @a.cu#2-3, please\n\na.cu lines 2-3:\n```\ntwo\nthree\n```"
    )
    assert slash.attach("@op.py", read).endswith("op.py lines 1-1:\n```\nedited\n```")
    assert slash.attach("ask @someone or me@x.org", read) == "ask @someone or me@x.org"
    for words in ("@b.cu", "@a.cu#9-12", "@a.cu#3-2"):
        with pytest.raises(UsageError):
            slash.attach(words, read)


def test_attached_file_that_is_missing_loses_no_words(op: Path) -> None:
    """The words stay in sight, waiting, when a file that they attach is not there."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        app.query_one(SteerInput).value = "look at @nowhere.cu"
        app.query_one(SteerInput).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "no file nowhere.cu" in app.bar.noticed)
        assert [w.text for w in app.bar.waiting] == ["look at @nowhere.cu"]

    driven(op, act)


def test_a_model_hears_a_steer_and_is_stopped(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a scripted model and the real core: a steer reaches its next request, a rule in it stands, stop ends it."""
    monkeypatch.setenv("KFORGE_PLAN", "quick")
    monkeypatch.setenv("KFORGE_DEVICE", "cpu")
    monkeypatch.setenv("KFORGE_API_KEY", "sk-scripted")
    op.write_text(op.read_text().replace("torch.randn(128, 1024)", "torch.randn(8, 64)"))
    step = {**calls(tool("list_files"), words="thinking about it " * 12), "delay": 0.2}
    with ScriptedModel([repeat(step)]) as served:
        op.with_name("kforge.toml").write_text(f'model = "scripted"\nbase_url = "{served.base_url}"\n')

        async def act(app: KforgeApp, pilot: Any) -> None:
            assert app.model == "scripted"
            await pilot.press("f2")
            await until(pilot, lambda: served.requests)
            await pilot.press("ctrl+g")
            await type_text(pilot, "keep the NaN semantics")
            await pilot.press("enter")
            await until(pilot, lambda: any("NaN semantics" in json.dumps(r.body) for r in served.requests))
            await until(pilot, lambda: "keep_nan" in app.bar.rules and not app.bar.waiting)
            await until(pilot, lambda: app.progress.model == "scripted" and app.progress.tokens > 0)
            app.action_stop()
            await until(pilot, lambda: not app.core.busy)
            count = len(served.requests)
            await pilot.pause(1.0)
            assert len(served.requests) == count

        driven(op, act, real=True)
