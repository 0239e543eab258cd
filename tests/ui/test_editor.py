"""The editor: tabs, saving, undo, finding, figures and diagnostics on their lines, files that change outside, vim."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from kforge.errors import UsageError
from kforge.ui import clipboard, settings
from kforge.ui.app import KforgeApp
from kforge.ui.buffer import Buffer
from kforge.ui.diagnostics import Diagnostic, find, of_event
from kforge.ui.settings import Settings
from tests.ui.driving import driven, on_screen, requests, type_text, until
from tests.ui.scripted_core import FILES, KERNEL, MODULE


def ran(app: KforgeApp) -> bool:
    """The scripted run is over and its files are open for editing."""
    return not app.core.busy and len([b for b in app.desk.editor.buffers if b.path]) == 3


def kernel(app: KforgeApp) -> Buffer:
    """The buffer of the kernel source."""
    found = app.desk.editor.buffer(KERNEL)
    assert found is not None
    return found


def test_edit_save_undo(op: Path) -> None:
    """Typing marks the tab, saving writes the file, undo takes the edit back; figures of op.py do not exist."""
    before = op.read_text()

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        await type_text(pilot, "ab")
        assert buffer.dirty and "softmax.py*" in on_screen(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not buffer.dirty)
        assert op.read_text() == "ab" + before and "saved softmax.py" in app.bar.noticed
        await pilot.press("ctrl+z")
        assert buffer.text == before and buffer.dirty

    driven(op, act)


def test_find_and_go_to_line(op: Path) -> None:
    """ctrl+f finds around the end and says when nothing is there; alt+g goes to a line; escape puts the bar away."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        await pilot.press("ctrl+f")
        await type_text(pilot, "softmax")
        await pilot.press("enter")
        await until(pilot, lambda: buffer.selected_text == "Softmax")
        assert buffer.selection.end[0] == 0
        await pilot.press("escape", "alt+n")
        assert buffer.selected_text == "Softmax"  # around the end: there is one
        await pilot.press("alt+g")
        await type_text(pilot, "9")
        await pilot.press("enter")
        assert buffer.cursor_location == (8, 0) and app.focused is buffer
        assert not app.desk.editor.query_one("#find", Input).display
        await pilot.press("ctrl+f")
        app.desk.editor.query_one("#find", Input).value = "v[/]"
        await pilot.press("enter")
        await until(pilot, lambda: "not found: v[/]" in on_screen(app))

    driven(op, act)


def test_profile_figures_in_the_gutter(op: Path) -> None:
    """A profile puts one figure beside its lines; keys cycle the metric and walk the hot lines; edits turn it grey."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        await pilot.press("f9")
        await until(pilot, lambda: kernel(app).figures.values)
        buffer = kernel(app)
        assert buffer.figures.metric == "instructions" and buffer.figures.texts == {1: "4", 2: "40"}
        app.desk.editor.activate(buffer)
        await pilot.press("alt+j")
        assert buffer.cursor_location[0] == 2
        await pilot.press("alt+j")
        assert buffer.cursor_location[0] == 1
        await pilot.press("alt+k")
        assert buffer.cursor_location[0] == 2

        def drawn() -> list[str]:
            return next((row.split() for row in on_screen(app).splitlines() if "x[threadIdx.x] = 1.0f" in row), [])

        await until(pilot, lambda: drawn()[:2] == ["40", "3"])
        await pilot.press("alt+m")
        assert buffer.figures.metric == "width" and buffer.figures.texts == {2: "4B"}
        await pilot.press("alt+m")
        assert not buffer.figures.values
        await pilot.press("alt+m")
        await type_text(pilot, "z")
        await until(pilot, lambda: buffer.stale)
        await pilot.press("ctrl+z")
        await until(pilot, lambda: not buffer.stale)

    driven(op, act)


def test_diagnostics_on_their_lines(op: Path) -> None:
    """F5 judges what the editor holds, unsaved edits included; what the compiler says stands on its line."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        buffer = kernel(app)
        app.desk.editor.activate(buffer)
        buffer.take_text(buffer.text.replace("1.0f", "broken"), saved=False)
        await pilot.press("f5")
        await until(pilot, lambda: buffer.marks)
        assert {line: mark.text for line, mark in buffer.marks.items()} == {2: 'identifier "broken" is undefined'}
        buffer.go_to(3)
        await until(pilot, lambda: 'identifier "broken" is undefined' in on_screen(app))
        assert "●" in on_screen(app) and "build_failed" in app.bar.noticed
        buffer.take_text(FILES[KERNEL], saved=False)
        await pilot.press("f5")
        await until(pilot, lambda: not buffer.marks and "verified" in app.bar.noticed)

    driven(op, act)


def test_changes_outside(op: Path, tmp_path: Path) -> None:
    """An atomic save by another program is taken over and judged again; with edits here it is a conflict instead."""
    log = tmp_path / "requests"
    path = tmp_path / "kforge_out" / "softmax" / KERNEL

    def replace(text: str) -> None:
        fresh = path.with_name("fresh")
        fresh.write_text(text)
        os.replace(fresh, path)

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        buffer = kernel(app)
        replace(FILES[KERNEL] + "// outside\n")
        await until(pilot, lambda: buffer.text.endswith("// outside\n"))
        assert not buffer.dirty
        await until(pilot, lambda: requests(log, "verify"))
        assert requests(log, "verify")[0]["files"][KERNEL].endswith("// outside\n")
        await until(pilot, lambda: not app.core.busy)
        await app.command("verify", "thorough")
        await until(pilot, lambda: "'thorough' is not a plan" in app.bar.noticed)
        await app.command("verify", "full")
        await until(pilot, lambda: len(requests(log, "verify")) == 2 and not app.core.busy)
        assert [request.get("plan") for request in requests(log, "verify")] == [None, "full"]
        buffer.take_text("mine\n", saved=False)
        replace("theirs\n")
        await until(pilot, lambda: buffer.conflict)
        assert buffer.text == "mine\n"
        app.desk.editor.activate(buffer)
        await until(pilot, lambda: f"{KERNEL}!" in on_screen(app) and "changed on disk" in on_screen(app))
        app.action_reload()
        assert buffer.text == "theirs\n" and not buffer.conflict
        buffer.undo()
        assert buffer.text == "mine\n"

    driven(op, act, log=str(log))


def test_editing_op_loads_it_again(op: Path, tmp_path: Path) -> None:
    """Saving op.py makes the core read it again."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("x", "ctrl+s")
        await until(pilot, lambda: len(requests(log, "open")) == 2)

    driven(op, act, log=str(log))


def test_read_only_candidates(op: Path) -> None:
    """A candidate out of the store cannot be typed into or saved; it never hides a file that can."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await app.show_candidate("0123456789abcdef")
        buffer = kernel(app)
        assert buffer.path is None and buffer.read_only
        app.desk.editor.activate(buffer)
        buffer.focus()
        await pilot.press("q", "ctrl+s")
        assert buffer.text == FILES[KERNEL] and "cannot be saved" in app.bar.noticed
        await pilot.press("f2")
        await until(pilot, lambda: ran(app))
        await app.show_candidate("0123456789abcdef")
        assert not kernel(app).read_only

    driven(op, act)


def test_outside_editor(op: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$EDITOR gets the file, unsaved edits written first; what it wrote is taken over. Without one, that is said."""
    script = tmp_path / "ed.sh"
    script.write_text('#!/bin/sh\necho "# by ed [/]" >> "$2"\n')
    script.chmod(0o755)

    async def act(app: KforgeApp, pilot: Any) -> None:
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.delenv("EDITOR", raising=False)
        await pilot.press("alt+e")
        assert "EDITOR is not set" in app.bar.noticed
        monkeypatch.setenv("EDITOR", f"{script} -w")
        from contextlib import nullcontext

        monkeypatch.setattr(app, "suspend", nullcontext)
        await pilot.press("x", "alt+e")
        await until(pilot, lambda: app.desk.editor.current.text.endswith("# by ed [/]\n"))
        assert op.read_text().startswith("x")

    driven(op, act)


def test_a_change_while_it_closes_is_left_alone(op: Path) -> None:
    """A file may change on disk when the panes are gone already: no error then, and nothing is loaded."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await app.desk.remove()
        op.write_text("changed = True\n")
        await app.take_changes([op])
        assert not app.query("Desk")

    driven(op, act)


def test_vim_motions(op: Path) -> None:
    """With vim = true: normal mode moves and edits by commands, insert mode types, escape leaves it."""
    op.write_text("one two\nthree\nfour\n")

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        await pilot.press("w")
        assert buffer.cursor_location == (0, 3) or buffer.cursor_location == (0, 4)
        await pilot.press("j", "0", "d", "d")
        assert buffer.text == "one two\nfour\n"
        await pilot.press("p", "u", "u")
        assert buffer.text == "one two\nthree\nfour\n"
        await pilot.press("g", "g", "2", "x")
        assert buffer.text.startswith("e two")
        await pilot.press("o", "h", "i", "escape", "x")
        assert buffer.vim.mode == "normal" and buffer.text.startswith("e two\nhi")
        await pilot.press("G")
        assert buffer.cursor_location[0] == buffer.document.line_count - 1
        await pilot.press("2", "G")
        assert buffer.cursor_location[0] == 1
        assert "NORMAL" in on_screen(app)

    driven(op, act, settings=Settings(vim=True))


def test_huge_and_odd_files(op: Path) -> None:
    """A huge file is shown plain; control characters are drawn harmless and saved as they are; CRLF stays CRLF."""
    op.write_bytes(b"a\x1b[31mred\r\nb = 1\r\n")

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        assert "\x1b" not in on_screen(app) and "a�[31mred" in on_screen(app)
        await pilot.press("x", "ctrl+s")
        await until(pilot, lambda: not buffer.dirty)
        assert op.read_bytes() == b"xa\x1b[31mred\r\nb = 1\r\n"
        big = await app.desk.editor.show("big.cu", "int x;\n" * 4000)
        small = await app.desk.editor.show("small.cu", "int x;\n")
        assert big.language is None and small.language == "cuda"
        assert any(name == "type" for spans in small._highlights.values() for _, _, name in spans)

    driven(op, act)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/tmp/a/row.cu(12): error: x[/] is undefined", [Diagnostic("row.cu", 12, "x[/] is undefined")]),
        ("row.cu(3): warning #177-D: unused", [Diagnostic("row.cu", 3, "unused", "warning")]),
        ("row.cu:7:5: error: 'y' was not declared", [Diagnostic("row.cu", 7, "'y' was not declared")]),
        ("row_kforge.py:4: calls eval [dynamic_code]", [Diagnostic("row_kforge.py", 4, "calls eval [dynamic_code]")]),
        ("3 errors detected in row.cu", []),
    ],
)
def test_what_a_log_says_of_lines(text: str, found: list[Diagnostic]) -> None:
    """Messages of nvrtc, nvcc, g++ and the static gate are found with their lines."""
    assert list(find(text)) == found


def test_diagnostics_of_events() -> None:
    """A failed gate and the warnings of a report speak of lines; a gate that passed does not."""
    detail = f"{MODULE}:2: bad [x]"
    assert of_event("gate", {"name": "static", "passed": True, "detail": detail}) == []
    assert [d.line for d in of_event("gate", {"name": "static", "passed": False, "detail": detail})] == [2]
    report = {"gates": [{"name": "static", "passed": False, "detail": detail}], "warnings": [f"{MODULE}:5: odd [y]"]}
    found = of_event("evaluated", {"status": "rejected", "report": report})
    assert [(d.line, d.severity) for d in found] == [(2, "error"), (5, "warning")]


def test_settings_are_checked(tmp_path: Path) -> None:
    """Unknown names, bad values and keys used twice are told with the file and what would be right."""
    for text, words in (
        ('[ui]\nthem = "dark"', "did you mean theme"),
        ('[ui]\ntheme = "pink"', "ui.theme cannot be 'pink'"),
        ("[ui]\nvim = 1", "ui.vim"),
        ('[keys]\nverfy = "f6"', "did you mean verify"),
        ('[keys]\nverify = "f8"', "f8 is the key of verify and of show_diff"),
        ('[keys]\nverify = "F 5"', "is no key"),
        ("ui = 3", "ui must be a table"),
    ):
        (tmp_path / "kforge.toml").write_text(text)
        with pytest.raises(UsageError) as told:
            settings.load(tmp_path)
        assert words in f"{told.value.message} {told.value.hint}", text
    (tmp_path / "kforge.toml").write_text('budget = "5s"\n[ui]\ntheme = "light"\n[keys]\nverify = "f6"\nmetric = ""\n')
    from kforge import config

    assert config.load(tmp_path).budget == 5.0  # the other commands leave these tables alone
    found = settings.load(tmp_path)
    assert found.theme == "light" and found.keys == {"verify": "f6", "metric": ""}


def test_keymap_is_in_force(op: Path, tmp_path: Path) -> None:
    """A key of [keys] does what it says, and the default no longer does."""
    log = tmp_path / "requests"

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("f2")
        await pilot.pause(0.3)
        assert not requests(log, "run")
        await pilot.press("f5")
        await until(pilot, lambda: requests(log, "run"))

    driven(op, act, settings=Settings(keys={"run": "f5", "verify": "f2"}), log=str(log))


def test_toml_edits_keep_the_rest() -> None:
    """A value is changed, added or taken out in its table; comments and other tables stay."""
    text = '# mine\nbudget = "5s"\n\n[ui]\ntheme = "dark"  # best\n\n[prices."m"]\ninput = 1.0\n'
    assert 'theme = "light"\n' in settings.edited(text, "ui", "theme", "light")
    assert '\nvim = true\n\n[prices."m"]' in settings.edited(text, "ui", "vim", True)
    assert settings.edited(text, "keys", "run", "f9").endswith('input = 1.0\n\n[keys]\nrun = "f9"\n')
    assert "theme" not in settings.edited(text, "ui", "theme", None)
    assert settings.edited("", "keys", "run", None) == ""


def test_copying_says_what_became_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """OSC 52 goes out once where a terminal takes it; where it cannot work, that is said and nothing is written."""
    sent: list[str] = []
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert clipboard.copy("a\nb", sent.append) == "copied 2 lines" and sent == ["a\nb"]
    assert clipboard.copy("x" * 80_000, sent.append).startswith("not copied")
    monkeypatch.setenv("TERM", "linux")
    assert clipboard.copy("a", sent.append).startswith("not copied") and len(sent) == 1
