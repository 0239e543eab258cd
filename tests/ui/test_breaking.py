"""What breaks an IDE: a core that speaks nonsense, wrong words, settings."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual import events
from textual.widgets import Markdown

from kforge.errors import ExportError, KforgeError, UsageError
from kforge.ui import app as app_module
from kforge.ui import core as core_module
from kforge.ui import settings, slash
from kforge.ui.app import KforgeApp
from kforge.ui.core import Core
from kforge.ui.gutter import Figures
from kforge.ui.leader import Leader
from kforge.ui.saying import Saying
from kforge.ui.serving.leaving import place
from kforge.ui.steer import LINE_END, SteerInput
from kforge.ui.watch import Watch
from tests import patience
from tests.patience import PATIENCE_S
from tests.ui.driving import driven, on_screen, requests, until
from tests.ui.test_app import ran

SAID = [
    {"event": 5, "data": {}},
    {"event": "evaluated", "data": "no object"},
    {"event": "evaluated", "data": {}},
    {"event": "gate", "data": {"passed": "maybe", "name": 3}},
    {"event": "steer", "data": {"steer": [], "state": 1}},
    {"event": "lost", "data": {}},
    {"re": [1], "ok": True},
    {"re": 10**9, "error": 3},
    {"error": "words"},
    [1, 2],
]


def test_a_core_that_speaks_nonsense(op: Path) -> None:
    """Events and replies that make no sense end neither the IDE nor the reading of what comes after them."""
    lines = [json.dumps(said) for said in SAID] + ["no json", "\x1b[2J\x07", "{" * 5000]
    code = (
        "import sys, json\n"
        "for line in sys.stdin:\n"
        f"    for said in {lines!r}: print(said, flush=True)\n"
        "    sys.stderr.write('x' * 3000000 + '\\n'); sys.stderr.flush()\n"
        "    n = json.loads(line)['id']\n"
        "    print(json.dumps({'event': 'message', 'data': {'text': 'still here'}}), flush=True)\n"
        "    print(json.dumps({'re': n, 'error': 7}), flush=True)\n"
    )
    app = KforgeApp(op, settings.Settings(), Core(op, command=[sys.executable, "-c", code]))

    async def run() -> None:
        async with app.run_test(size=(130, 40)) as pilot:
            heard: list[str] = []
            app.core.subscribe(lambda kind, data: heard.append(str(data.get("text", ""))))
            await until(pilot, lambda: "still here" in heard)
            await until(pilot, lambda: "no error" in app.bar.noticed or "still here" in app.bar.noticed)
            assert app.core.alive and max(map(len, heard)) <= core_module.WORDS

    asyncio.run(run())


def test_a_line_without_end(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core whose line is longer than anything meant ends, and who waits for it is told."""
    monkeypatch.setattr(core_module, "LINE_BYTES", 1 << 16)
    code = "import sys\nsys.stdin.readline()\nsys.stdout.write('x' * 9000000)\nsys.stdout.flush()\nsys.stdin.read()"

    async def run() -> None:
        core = Core(op, command=[sys.executable, "-c", code])
        with pytest.raises(KforgeError, match="line of more than"):
            await asyncio.wait_for(core.request("open"), PATIENCE_S)
        assert not core.alive

    asyncio.run(run())


def test_a_core_that_cannot_start_is_said_for_good(op: Path) -> None:
    """A core that ends at once (torch is missing) leaves its reason in sight and the file open."""
    said = {"error": {"kind": "missing", "message": "torch is missing", "hint": "install it"}, "exit_code": 3}
    command = [sys.executable, "-c", f"print({json.dumps(said)!r})"]
    app = KforgeApp(op, settings.Settings(), Core(op, command=command))

    async def run() -> None:
        async with app.run_test(size=(130, 40)) as pilot:
            await until(pilot, lambda: "torch is missing" in app.bar.noticed)
            await until(pilot, lambda: "the core ended" in on_screen(app))
            app.bar.notice(app.bar._standing, stay=True)  # as when the notice's time is over
            assert "torch is missing" in app.bar.noticed and "Softmax" in on_screen(app)

    asyncio.run(run())


def test_a_hanging_look_up_can_be_stopped(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape twice ends a core that does not even answer what it only looks up."""
    monkeypatch.setattr(app_module, "DOUBLE_S", PATIENCE_S)  # however late the second one is looked at
    code = (
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    said = json.loads(line)\n"
        "    if said['do'] not in ('hunks', 'stop'):\n"
        "        print(json.dumps({'re': said['id'], 'ok': True, 'result': {'target': 't', 'rules': [], 'model': '',"
        " 'out': '.'}}), flush=True)\n"
    )
    app = KforgeApp(op, settings.Settings(), Core(op, command=[sys.executable, "-c", code]))

    async def run() -> None:
        async with app.run_test(size=(130, 40)) as pilot:
            await until(pilot, lambda: app.session)
            first = app.core.pid
            app.candidate = "0" * 16
            await pilot.press("f8")
            await until(pilot, lambda: app.core.waits)
            await pilot.press("escape", "escape")
            await until(pilot, lambda: app.core.alive and app.core.pid != first)

    asyncio.run(run())


def judged(digest: str, ms: float | None = None, status: str = "verified", **more: Any) -> tuple[str, dict[str, Any]]:
    return "evaluated", {"candidate": digest, "status": status, "ms": ms, "verdict": "untimed", **more}


def test_the_best_is_the_same_everywhere(op: Path) -> None:
    """Judging another candidate does not displace the best; a rule that it was not judged under does."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        first, other = "a" * 16, "b" * 16
        app._on_core("run_started", {"task": "softmax.py", "command": "suggest"})
        app._on_core("proposed", {"candidate": first, "node": 1, "parent_node": 0})
        app._on_core(*judged(first, node=1))
        app._on_core("best", {"candidate": first})
        app._on_core("run_finished", {"status": "verified"})
        app._on_core("run_started", {"task": "softmax.py", "command": "verify"})
        app._on_core("proposed", {"candidate": other, "proposer": "user"})
        app._on_core(*judged(other))
        app._on_core("best", {"candidate": other})
        app._on_core("run_finished", {"status": "verified"})

        def everywhere() -> set[str]:
            timeline, tree = app.desk.panes["timeline"], app.desk.panes["tree"]
            starred = [d for d in (first, other) if timeline.attempt(d).best]
            node = tree.view.best
            return {app.progress.best, *starred, *([node.candidate] if node else [])}

        assert everywhere() == {first} and f"best {first[:8]}" in app.progress.text()
        app._on_core("constraint", {"name": "keep_nan", "action": "added"})
        assert everywhere() == {""}
        app._on_core(*judged(other, constraints=["keep_nan"]))
        assert everywhere() == {other}
        app._on_core("constraint", {"name": "keep_nan", "action": "removed"})
        assert everywhere() == {first}

    driven(op, act)


def test_leader_by_time_and_task() -> None:
    """The faster one leads, a report that takes its word back counts, another op.py begins anew."""
    leader = Leader()
    assert leader.apply(*judged("a", 2.0)) and not leader.apply(*judged("b", 3.0)) and leader.apply(*judged("c", 1.0))
    assert leader.digest == "c" and leader.apply(*judged("c", status="wrong")) and leader.digest == "a"
    leader.apply("task_loaded", {"digest": "one"})
    assert leader.digest == "a" and leader.apply("task_loaded", {"digest": "two"}) and leader.digest == ""


def test_what_is_ideal_is_not_hot() -> None:
    """Figures at their ideal have no heat and are no hot lines; those above it are by how much; wide is cool."""
    assert Figures("excess", values={1: 1.0, 2: 1.0}).hottest == []
    figures = Figures("excess", values={1: 1.0, 2: 8.0, 3: 4.5})
    assert figures.hottest == [2, 3] and [figures.heat(n) for n in (1, 2, 3)] == [0.0, 1.0, 0.5]
    assert Figures("width", values={1: 16.0, 2: 4.0, 3: 1.0}).hottest == [3, 2]
    assert Figures("instructions", values={1: 4.0, 2: 40.0}).hottest == [2, 1]


def test_help_makes_no_links_of_file_names(op: Path) -> None:
    """op.py in the help is text: .py is also a country."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f1")
        await until(pilot, lambda: app.screen.query(Markdown))
        parser = app.screen.query_one(Markdown)._parser_factory()
        assert "<a " not in parser.render("op.py and www.example.com")

    driven(op, act)


def test_what_is_known_before_any_run(op: Path) -> None:
    """Opening the file is enough for shapes and floor to stand in the profile pane."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f9")
        await until(pilot, lambda: "float32[128, 1024]" in on_screen(app) and "floor 12.3 us" in on_screen(app))

    driven(op, act)


@pytest.mark.parametrize(
    ("argument", "budget", "usd"),
    [
        ("120s 0.5", 120.0, 0.5),
        *((words, None, None) for words in ("nan", "0", "60 nan", "60 inf", "60 -1", "-5 1", "60 1 2", "", "9" * 400)),
    ],
)
def test_budget_nonsense(argument: str, budget: float | None, usd: float | None) -> None:
    """Only numbers that limit something are taken."""
    said: list[str] = []
    bar = SimpleNamespace(notice=lambda text, **_: said.append(text))
    app = SimpleNamespace(bar=bar, budget=None, usd=None)
    Saying._set_budget(cast("Saying", app), argument)
    assert (app.budget, app.usd) == (budget, usd) and said


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret.txt", "big.txt", "binary.bin"])
def test_what_is_not_attached(tmp_path: Path, name: str) -> None:
    """Files outside the folder, binary and enormous ones are refused, with the name."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("s")
    (folder / "big.txt").write_bytes(b"x" * (slash.ATTACHED_BYTES + 1))
    (folder / "binary.bin").write_bytes(b"\0\1")
    with pytest.raises(UsageError, match=name.rpartition("/")[2].partition(".")[0]):
        slash.attach(f"look at @{name}#1-2", slash.reader(folder, dict))


def test_pasting_into_the_steer_input(op: Path, tmp_path: Path) -> None:
    """All lines of a paste arrive at the agent; a megabyte is refused in words and changes nothing."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot: Any) -> None:
        line = app.query_one(SteerInput)
        line.focus()
        line.post_message(events.Paste("first [/]\r\n\tsecond\n"))
        await until(pilot, lambda: line.value == f"first [/]{LINE_END}    second")
        line.post_message(events.Paste("x" * 1_000_000))
        await until(pilot, lambda: "too many to say" in app.bar.noticed)
        await pilot.press("enter")
        await until(pilot, lambda: requests(log, "steer"))
        assert requests(log, "steer")[0]["text"] == "first [/]\n    second"

    driven(op, act, log=str(log))


@pytest.mark.parametrize(
    "key", ["x", "ctrl+enter", "ctrl+i", "ctrl+m", "escape", "super+f", "enter", "f99", "alt+b", "alt+f"]
)
def test_keys_that_cannot_be_pressed(key: str) -> None:
    """Keys that a terminal does not send, or that are needed to type, are refused."""
    with pytest.raises(UsageError, match=r"keys\.run"):
        settings.parse({"keys": {"run": key}})
    assert settings.parse({"keys": {"run": "ctrl+r,f6"}}).keys == {"run": "ctrl+r,f6"}


def test_settings_that_cannot_be_written(tmp_path: Path) -> None:
    """A value that would not be accepted is not written, not even for a moment."""
    path = tmp_path / "kforge.toml"
    path.write_text('[keys]\nrun = "f6"\n')
    with pytest.raises(UsageError):
        settings.store(path, "keys", "verify", "f6")
    assert path.read_text() == '[keys]\nrun = "f6"\n'


def test_every_action_at_any_moment(op: Path) -> None:
    """Every command of the palette, before a run, with a candidate and under each other's dialogs: the app goes on."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        for command in app.get_system_commands(app.screen):
            if command.title.partition(" (")[0] in ("Quit", "Open in $EDITOR", "Run/stop"):
                continue
            command.callback()
            await pilot.pause(0.01)
            if len(app.screen_stack) > 1:
                await pilot.press("f2", "f10", "escape")
        end = time.monotonic() + PATIENCE_S
        while app.core.waits or len(app.screen_stack) > 1 or any(not worker.is_finished for worker in app.workers):
            assert time.monotonic() < end
            await pilot.pause(0.02)
            if len(app.screen_stack) > 1:  # of a command that had to ask the core first
                await pilot.press("escape")
        assert app.is_running

    driven(op, act)


def test_two_panes_at_once(op: Path) -> None:
    """Two panes asked for before the first has been told of: the second stays, and nothing goes on between them."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        told: list[str] = []
        show = app.desk.show
        app.desk.show = lambda name, **how: (told.append(name), show(name, **how))[1]  # type: ignore[method-assign]
        app.desk.show("log")
        app.desk.show("tree")
        await until(pilot, lambda: app.desk.shown == "tree")
        for _ in range(5):
            await pilot.pause()
        assert told == ["log", "tree"] and app.desk.shown == "tree"

    driven(op, act)


def test_no_watch_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no watch left, the files are looked at instead."""
    from watchdog.observers.inotify import InotifyObserver

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(InotifyObserver, "schedule", refuse)
    told: list[set[Path]] = []
    path = tmp_path / "a.py"
    path.write_text("1")
    watch = Watch(told.append)
    watch.follow([path])
    assert type(watch._observer).__name__ == "PollingObserver"
    numbers = itertools.count()
    patience.until(
        lambda: path.write_text(f"other {next(numbers)}") and told
    )  # again: the first look at it may come later
    watch.close()
    assert told[0] == {path}


def test_export_that_fails_says_why(op: Path) -> None:
    """The reason stays in sight: "not exported" comes after it, not over it."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        app.progress.accepted = app.candidate
        app.action_export()
        await until(pilot, lambda: app.screen.query("#export-to"))
        app.screen.query_one("#export-to").value = "taken"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "taken is not empty" in app.bar.noticed)

    op.with_name("taken").mkdir()
    driven(op, act)


def test_numbers_and_words_in_the_bar(op: Path) -> None:
    """No line number ends the IDE, however it is written; what is found is selected beside odd letters, too."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        last = buffer.document.line_count - 1
        for words, row in (("3", 2), ("\u00b2", 2), ("9" * 5000, last), ("0", 0), ("-1", 0), ("two", 0)):
            app.action_go_to_line()
            app.desk.editor.submitted(words)
            assert buffer.cursor_location[0] == row, words
        buffer.take_text("\u0130\u0130\u0130 abc\n")
        app.action_find()
        app.desk.editor.submitted("abc")
        assert buffer.selected_text == "abc"

    driven(op, act)


def test_lines_that_no_file_has(tmp_path: Path) -> None:
    """A line number of thousands of digits is refused like any other that is too large."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(UsageError, match="has no lines"):
        slash.attach("look at @a.txt#" + "9" * 5000, slash.reader(tmp_path, dict))
    assert "two" in slash.attach("look at @a.txt#2-" + "9" * 5000, slash.reader(tmp_path, dict))


@pytest.mark.parametrize("to", ["file/x", "file", "x" * 5000, "a\0b", "~nobody-of-that-name/x"])
def test_export_into_what_can_be_no_folder(tmp_path: Path, to: str) -> None:
    """Where no folder can be made it is said before a package is built."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"folder"):
        place(to, tmp_path)
    assert place("new/one", tmp_path) == tmp_path / "new" / "one"


@pytest.mark.parametrize("data", [b"[ui\n", b"\xff\xfe"])
def test_settings_that_became_unreadable(tmp_path: Path, data: bytes) -> None:
    """A kforge.toml that another program broke is refused in words, and is left as it is."""
    path = tmp_path / "kforge.toml"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="cannot be changed without harm"):
        settings.store(path, "ui", "vim", True)
    assert path.read_bytes() == data and [p.name for p in tmp_path.iterdir()] == ["kforge.toml"]
