"""The IDE through its keys: every action changes what it says it changes. The core is scripted."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from textual.command import CommandList

from kforge.ui import app as app_module
from kforge.ui.actions import ACTIONS
from kforge.ui.app import KforgeApp
from kforge.ui.help import HelpScreen
from kforge.ui.listing import ListScreen
from kforge.ui.settings_screen import SettingsScreen
from kforge.ui.status import KeyBar
from tests.patience import PATIENCE_S
from tests.ui.driving import driven, on_screen, requests, type_text, until


def ran(app: KforgeApp) -> bool:
    """The scripted run is over and its files are open."""
    buffers = app.desk.editor.buffers
    return not app.core.busy and app.progress.status == "verified" and len([b for b in buffers if b.path]) == 3


def test_run_shows_its_candidate(op: Path) -> None:
    """F2 runs the engine: timeline, status line, tabs and the key bar say what was found."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        assert app.progress.best and app.progress.target == "emulator"
        assert [b.file for b in app.desk.editor.buffers] == ["softmax.py", "softmax_kforge.py", "softmax_kforge.cu"]
        assert all(b.path is not None for b in app.desk.editor.buffers)
        await until(pilot, lambda: "verified" in on_screen(app) and "F4 Accept" in on_screen(app))
        assert "F4 accepts it" in app.bar.noticed

    driven(op, act)


def test_stop_by_key_and_by_escape(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2 again, or escape twice within a moment, stops; escapes that are further apart do not."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.candidate)
        monkeypatch.setattr(app_module, "DOUBLE_S", 0.0)
        await pilot.press("escape", "escape")
        assert app.core.busy == "run" and app.bar.noticed == "escape again stops"
        monkeypatch.setattr(app_module, "DOUBLE_S", PATIENCE_S)
        await pilot.press("escape")
        await until(pilot, lambda: not app.core.busy and "stopped" in app.bar.noticed and app.core.alive)
        await pilot.press("f2")
        await until(pilot, lambda: app.core.busy)
        await pilot.press("f2")
        await until(pilot, lambda: not app.core.busy)

    driven(op, act, pause=0.2)


def test_stop_ends_a_core_that_does_not_listen(op: Path) -> None:
    """A core that goes on after a stop is killed and replaced; what waited to be said is kept."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.candidate)
        first = app.core.pid
        assert await app.ask("steer", text="smaller tiles", when="queued") is not None
        await until(pilot, lambda: app.bar.waiting)
        app.action_stop()
        await until(pilot, lambda: app.core.alive and app.core.pid != first)
        assert app.progress.status != "verified"  # as after its whole run
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        assert [(w.text, w.id < 0) for w in app.bar.waiting] == [("smaller tiles", True)]

    driven(op, act, pause=0.5, stubborn=True)


def test_crash_shows_last_words_and_keeps_the_session(op: Path) -> None:
    """A core that dies says its last words, brackets and all; editor, rules and the next command go on."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("x")
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        await pilot.press("f9")
        await until(pilot, lambda: "tile[threadIdx.x] = v[/]" in app.bar.noticed)
        assert not app.core.alive and not app.core.busy
        assert app.desk.editor.buffer("softmax.py").text.startswith("x")
        assert await app.ask("runs") is not None and app.core.alive

    driven(op, act, crash="profile")


def test_accept_undo_export(op: Path) -> None:
    """F4 shows the evidence before it writes, escape writes nothing; undo takes back; export follows an accept."""
    beside = op.with_name("softmax_kforge.cu")

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        await pilot.press("f4")
        await until(pilot, lambda: type(app.screen).__name__ == "AcceptScreen")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert not beside.exists()
        await pilot.press("f4")
        await until(pilot, lambda: type(app.screen).__name__ == "AcceptScreen")
        await pilot.press("a")
        await until(pilot, lambda: app.progress.accepted)
        assert beside.exists()
        await until(pilot, lambda: app.desk.editor.buffer("softmax_kforge.cu").path == beside)
        await pilot.press("f10")
        await until(pilot, lambda: type(app.screen).__name__ == "ExportScreen")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "exported to softmax_package (EMULATOR ONLY)" in app.bar.noticed)
        await app.command("undo", "")
        await until(pilot, lambda: not app.progress.accepted)
        assert not beside.exists()

    driven(op, act)


def test_panes_and_focus(op: Path) -> None:
    """Keys bring each pane into sight, F3 goes around them all, F1 shows the help of the one with the focus."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        seen = []
        for _ in range(7):
            await pilot.press("f3")
            await pilot.pause()
            seen.append("steer" if app.focused.id == "steer" else app.desk.focused_pane)
        assert seen == ["timeline", "diff", "profile", "tree", "log", "steer", "editor"]
        for key, pane in (
            ("alt+1", "timeline"),
            ("alt+2", "tree"),
            ("alt+3", "log"),
            ("f8", "diff"),
            ("f9", "profile"),
        ):
            await pilot.press(key)
            await until(pilot, lambda pane=pane: app.desk.focused_pane == pane)
        await pilot.press("alt+1", "f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        assert app.screen.text.startswith("# Timeline")
        await pilot.press("escape")
        await pilot.press("ctrl+g", "f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        assert app.screen.text.startswith("# Steer")

    driven(op, act)


def test_narrow_terminal_shows_one_pane(op: Path) -> None:
    """At 80x24 the editor or one pane is in sight, and the steer input, status line and keys always are."""

    async def act(app: KforgeApp, pilot) -> None:
        assert app.desk.shown == "editor" and app.desk.editor.region.width == 80
        await pilot.press("f8")
        await until(pilot, lambda: app.desk.shown == "diff")
        await pilot.pause()
        assert app.desk.editor.region.width == 0 and app.desk.panes["diff"].region.width == 80
        assert [app.query_one(name).region.height for name in ("#steer", "StatusLine", "KeyBar")] == [1, 1, 1]
        assert app.query_one("KeyBar").region.bottom == 24
        await pilot.press("alt+0")
        await until(pilot, lambda: app.desk.shown == "editor" and app.desk.editor.region.width == 80)
        await pilot.resize_terminal(130, 40)
        await until(pilot, lambda: app.desk.panes["diff"].region.width > 0 and app.desk.editor.region.width > 0)

    driven(op, act, size=(80, 24))


def test_every_action_has_a_method_and_a_palette_entry(op: Path) -> None:
    """The palette offers everything once, and nothing that the app cannot do; keys are not used twice."""

    async def act(app: KforgeApp, pilot) -> None:
        titles = [c.title for c in app.get_system_commands(app.screen)]
        assert len(titles) == len(set(titles)) == len(ACTIONS) - 1
        for action in ACTIONS.values():
            name = action.action.partition("(")[0]
            assert hasattr(app, f"action_{name}"), action.id
        keys = [a.key for a in ACTIONS.values() if a.key]
        assert len(keys) == len(set(keys))
        await pilot.press("ctrl+p")
        await until(pilot, lambda: type(app.screen).__name__ == "CommandPalette")
        await type_text(pilot, "search tree")
        found = app.screen.query_one(CommandList)
        await until(pilot, lambda: found.option_count and "tree" in str(found.get_option_at_index(0).prompt))
        await pilot.press("enter")
        await until(pilot, lambda: app.desk.pane == "tree")

    driven(op, act)


def test_key_bar_has_at_most_seven_keys(op: Path) -> None:
    """Whatever has the focus, seven keys at most, the way out among them."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        for key in ("alt+0", "alt+1", "f8", "f9", "alt+2", "ctrl+g"):
            await pilot.press(key)
            await pilot.pause(0.1)
            keys = [key for key, _, _ in app.query_one(KeyBar).rows()]
            assert len(keys) <= 7 and keys[-1] == "ctrl+q", keys

    driven(op, act)


def test_sessions_are_listed_and_continued(op: Path, tmp_path: Path) -> None:
    """The picker lists this task's runs only; choosing one replays its log and resumes it."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot) -> None:
        await app.command("resume", "")
        await until(pilot, lambda: isinstance(app.screen, ListScreen))
        assert [key for key, _ in app.screen.rows] == ["20260101-000000-softmax-abcdef"]
        await pilot.press("enter")
        await until(pilot, lambda: app.progress.status == "verified")
        asked = [requests(log, do)[0]["run"] for do in ("events", "resume")]
        assert asked == ["20260101-000000-softmax-abcdef"] * 2

    driven(op, act, log=str(log))


def test_a_run_that_is_not_there_clears_nothing(op: Path) -> None:
    """/resume with a wrong name is said, and what was found stays in sight and can be accepted."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        best, accepted = app.progress.best, app.progress.accepted
        await app.command("resume", "nowhere")
        await until(pilot, lambda: "no run 'nowhere'" in app.bar.noticed)
        assert best and (app.progress.best, app.progress.accepted) == (best, accepted)
        assert app.desk.panes["timeline"].attempt(best).best

    driven(op, act)


def test_accepts_of_another_process(op: Path) -> None:
    """A candidate that another IDE took back can be accepted here again, and one that it accepted is not asked for."""

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        app.progress.accepted = app.candidate  # and its files have gone
        await pilot.press("f4")
        await until(pilot, lambda: type(app.screen).__name__ == "AcceptScreen")
        assert not app.progress.accepted
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        op.with_name("softmax_kforge.cu").write_text("")
        await pilot.press("f4")
        await until(pilot, lambda: "it is accepted already" in app.bar.noticed)
        assert app.progress.accepted == app.candidate

    driven(op, act)


def test_settings_screen_writes_kforge_toml(op: Path) -> None:
    """A theme, a switch and a key chosen there are in kforge.toml; a key that is taken is refused and not written."""
    path = op.with_name("kforge.toml")
    path.write_text('budget = "30s"  # mine\n')

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        screen = app.screen
        screen.query_one("#ui-theme").value = "light"
        screen.query_one("#ui-vim").value = True
        await until(pilot, lambda: "vim = true" in path.read_text())
        field = screen.query_one("#key-verify")
        field.focus()
        field.value = "f6"
        await pilot.press("enter")
        await until(pilot, lambda: 'verify = "f6"' in path.read_text())
        field.value = "f8"
        await pilot.press("enter")
        await until(pilot, lambda: "show_diff" in str(screen.query_one("#said").content))
        assert 'verify = "f6"' in path.read_text()
        await pilot.press("escape")
        await until(pilot, lambda: app.theme == "kforge-light")
        assert path.read_text().startswith('budget = "30s"  # mine\n')

    driven(op, act)


def test_doctor_and_baseline(op: Path) -> None:
    """Doctor's table is shown as it is, brackets included; what needs a GPU says so and the IDE goes on."""

    async def act(app: KforgeApp, pilot) -> None:
        await app.run_action("doctor")
        await until(pilot, lambda: isinstance(app.screen, ListScreen))
        await until(pilot, lambda: "nvcc [/]" in on_screen(app))
        await pilot.press("escape")
        await app.run_action("baseline")
        await until(pilot, lambda: "needs a GPU" in app.bar.noticed)

    driven(op, act)


def test_no_task_is_said(op: Path) -> None:
    """A file that is no task opens all the same, with the reason; mending and saving it loads it."""
    op.write_text("not a task")

    async def act(app: KforgeApp, pilot) -> None:
        assert "no Model in it" in app.bar.noticed and not app.session
        app.desk.editor.current.take_text("class Model: pass\n", saved=False)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.session)

    driven(op, act)


def test_foreign_text_never_breaks_the_screen(op: Path) -> None:
    """Markup and control characters in events, errors, files and notices are shown, not obeyed."""
    hostile = "tile[threadIdx.x] = v[/] [b]x[/b] [@click=app.quit]y[/] \x1b[2J\x07 $text"

    async def act(app: KforgeApp, pilot) -> None:
        digest = "00112233" * 2
        app._on_core("proposed", {"candidate": digest, "idea": hostile, "proposer": hostile, "files": [hostile]})
        app._on_core("message", {"text": hostile})
        app._on_core("error", {"message": hostile, "hint": hostile})
        app._on_core("gate", {"candidate": digest, "name": "build", "passed": False, "detail": hostile})
        app._on_core("constraint", {"name": hostile, "action": "added", "origin": hostile})
        app._on_core("steer", {"id": 9, "text": hostile, "when": "now", "state": "received"})
        app._on_core("model_started", {"call": 1, "model": hostile, "role": hostile})
        app._on_core("model_text", {"call": 1, "text": hostile})
        app._on_core("log", {"text": hostile})
        await app.desk.editor.show(f"{hostile[:20]}.cu", hostile)
        for key in ("alt+1", "f8", "f9", "alt+2", "alt+3", "alt+0"):
            await pilot.press(key)
            await pilot.pause(0.1)
        await until(pilot, lambda: "tile[threadIdx.x] = v[/] [b]x[/b]" in on_screen(app))
        shown = on_screen(app)
        assert "\x1b" not in shown and "\x07" not in shown

    driven(op, act)


def test_themes_colour_the_editor(op: Path) -> None:
    """The editor's syntax colours follow the app's theme."""

    async def act(app: KforgeApp, pilot) -> None:
        def colours() -> tuple[str, str]:
            styles = app.desk.editor.current._theme.syntax_styles
            return str(styles["keyword"].color), str(styles["comment"].color)

        seen = {}
        for _ in range(3):
            await until(pilot, lambda: colours() not in seen.values())
            seen[app.theme] = colours()
            app.action_next_theme()
        assert len(seen) == 3

    driven(op, act)


def test_quit_warns_of_unsaved_edits(op: Path) -> None:
    """ctrl+q with unsaved edits warns once, then leaves; the core is gone afterwards."""
    app = None

    async def act(app: KforgeApp, pilot) -> None:
        await pilot.press("x", "ctrl+q")
        await until(pilot, lambda: "not saved: softmax.py" in app.bar.noticed)
        assert app.is_running
        await pilot.press("ctrl+q")

    app = driven(op, act)
    assert app.return_code == 0 and not app.core.alive


def test_core_refuses_and_recovers() -> None:
    """A core that cannot be started is an error in words, not a traceback."""
    from kforge.errors import KforgeError
    from kforge.ui.core import Core

    async def run() -> None:
        with pytest.raises(KforgeError, match="cannot be started"):
            await Core(Path("op.py"), command=["/no/such/program"]).request("open")

    asyncio.run(run())


def test_no_color(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR turns every colour into grey; what colours say, signs and words say too."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(app: KforgeApp, pilot) -> None:
        assert "Monochrome" in [type(f).__name__ for f in app._filters]

    driven(op, act)


def test_one_thing_at_a_time(op: Path, tmp_path: Path) -> None:
    """What is asked for twice before the core has heard of it is done once."""
    log = tmp_path / "asked.jsonl"

    async def act(app: KforgeApp, pilot) -> None:
        app.action_run()
        app.action_run()
        app.action_verify()
        assert app.bar.noticed == "run is in progress: escape twice stops it"
        await until(pilot, lambda: ran(app))
        await app.ask("runs")  # the core answers in order: nothing else waits
        assert len(requests(log, "run")) == 1 and requests(log, "verify") == []

    driven(op, act, log=str(log))
