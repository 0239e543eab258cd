"""Files under the IDE: changed, removed or odd outside, pasted whole, and edits that nothing takes away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual import events

from kforge.errors import KforgeError
from kforge.ui import files
from kforge.ui.app import KforgeApp
from kforge.ui.files import excerpt
from kforge.ui.first_run import tasks_in
from tests.ui.driving import driven, on_screen, until
from tests.ui.scripted_core import FILES, KERNEL


def test_saving_asks_before_it_overwrites_another_program(op: Path) -> None:
    """A change that nobody noticed yet is found when saving: the first time it is said, the second time overwritten."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        app.disk.close()  # no watcher helps
        buffer = app.desk.editor.current
        await pilot.press("x")
        op.write_text("theirs\n")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "changed on disk meanwhile" in app.bar.noticed)
        assert op.read_text() == "theirs\n" and buffer.dirty and buffer.conflict
        op.write_text("theirs again\n")
        await pilot.press("ctrl+s")
        await pilot.pause(0.1)
        assert op.read_text() == "theirs again\n"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not buffer.dirty)
        assert op.read_text() == buffer.text and buffer.text.startswith("x")

    driven(op, act)


def test_a_removed_file_is_kept_here(op: Path) -> None:
    """When op.py is removed its text is an unsaved edit: leaving warns, saving writes it again."""
    before = op.read_text()

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        op.unlink()
        await until(pilot, lambda: buffer.gone)
        await until(pilot, lambda: "removed from disk" in on_screen(app))
        assert buffer.dirty and buffer.text == before
        await pilot.press("ctrl+q")
        await until(pilot, lambda: "not saved: softmax.py" in app.bar.noticed)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not buffer.dirty)
        assert op.read_text() == before

    driven(op, act)


def test_another_candidate_does_not_take_the_place_of_edits(op: Path) -> None:
    """Edits of an accepted file survive a run that writes one of its name elsewhere, and an undo of the accept."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await until(pilot, lambda: app.desk.editor.buffer(KERNEL) is not None)
        buffer = app.desk.editor.buffer(KERNEL)
        buffer.take_text("mine\n", saved=False)
        await pilot.press("f2")
        await until(pilot, lambda: app.progress.status == "verified" and not app.core.busy)
        await until(pilot, lambda: buffer.other)
        app.desk.editor.activate(buffer)
        await until(pilot, lambda: "your edits are kept" in on_screen(app))
        assert buffer.text == "mine\n" and buffer.path == op.with_name(KERNEL)
        await app.command("undo", "")
        await until(pilot, lambda: buffer.gone)
        assert app.desk.editor.buffer(KERNEL) is buffer and buffer.text == "mine\n" and buffer.dirty

    for name, text in FILES.items():
        op.with_name(name).write_text(text)
    driven(op, act, accepted=True)


def test_leaving_warns_of_each_new_edit(op: Path) -> None:
    """The warning counts for the edits that it named, not for later ones; a dialog does not hide it."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("x", "ctrl+q")
        await pilot.pause(0.1)
        await pilot.press("ctrl+s", "y", "f1")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: len(app.screen_stack) == 1 and "not saved" in app.bar.noticed)
        assert app.is_running and op.read_text().startswith("x") and not op.read_text().startswith("xy")

    driven(op, act)


def test_odd_bytes_are_never_changed(op: Path) -> None:
    """Form feeds, line separators, binary, empty files: shown, and what can be saved is saved as it was."""
    kept = [b"\x00\x01\x02", b"", b"no newline", b"a\rb\r"]
    locked = [b"a\x0cb\n", b"a\xe2\x80\xa8b\n", b"\xff\xfe\x00"]

    async def act(app: KforgeApp, pilot: Any) -> None:
        for n, data in enumerate([*kept, *locked]):
            odd = op.with_name(f"odd{n}.cu")
            odd.write_bytes(data)
            buffer = await app.desk.editor.open(odd)
            app.desk.editor.focus_text()
            await pilot.press("x", "backspace", "y", "ctrl+z", "ctrl+s")
            assert odd.read_bytes() == data and buffer.read_only == (data in locked)
            assert "\x00" not in on_screen(app)

    driven(op, act)


def test_a_huge_paste_takes_the_colours(op: Path) -> None:
    """A paste of many lines is taken as one step without highlighting them at each key; undo takes it back."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        before = buffer.text
        assert buffer.coloured
        app.post_message(events.Paste("x = v[/]\n" * 5000))
        await until(pilot, lambda: buffer.document.line_count > 5000)
        await pilot.press("a")
        assert not buffer.coloured and buffer.text.count("x = v[/]") == 5000
        await pilot.press("ctrl+z", "ctrl+z")
        assert buffer.text == before

    driven(op, act)


def test_of_a_huge_file_an_excerpt_is_shown(op: Path) -> None:
    """Five megabytes, or one endless line: the beginning, read only, with the reason; changes outside still count."""
    head = "import torch\n"
    op.write_text(head + "TABLE = 1  # a line of some length\n" * 150_000)

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        assert buffer.document.line_count == 2000 and buffer.text.startswith(head)
        assert buffer.path is None and buffer.read_only
        await until(pilot, lambda: "read only, 5.3 MB: an excerpt, edit it in another program" in on_screen(app))
        await pilot.press("x", "ctrl+s")
        assert op.stat().st_size > 5_000_000 and buffer.text.startswith(head)
        op.write_text(head + "T = [" + "0, " * 20_000 + "]\n")
        await until(pilot, lambda: "T = [0" in buffer.text)
        assert max(map(len, buffer.document.lines)) < 600
        await until(pilot, lambda: "changed on disk: softmax.py" in app.bar.noticed)

    driven(op, act)
    assert excerpt(head) == (head, "")
    assert excerpt("0" * 20_000) == (
        "0" * 500 + " ...",
        "a line of 20000 characters: an excerpt, edit it in another program",
    )


def test_a_file_that_can_no_longer_be_edited(op: Path) -> None:
    """What another program makes of an open file is shown read only where saving would change its bytes, or is huge."""
    latin, huge = "# caf\xe9\n".encode("latin-1"), "x = 1\n" * 300_000

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        op.write_bytes(latin)
        await until(pilot, lambda: buffer.text == "# caf\ufffd\n" and buffer.read_only)
        await pilot.press("x", "ctrl+s")
        assert op.read_bytes() == latin and "read only" in app.bar.noticed
        op.write_text(huge)
        await until(pilot, lambda: buffer.text.startswith("x = 1") and buffer.document.line_count == 2000)
        assert buffer.read_only
        op.write_text("y = 2\n")
        await until(pilot, lambda: buffer.text == "y = 2\n" and not buffer.read_only)
        await pilot.press("z")
        op.write_bytes(latin)
        await until(pilot, lambda: buffer.conflict)
        await pilot.press("alt+r")
        await until(pilot, lambda: "your edits are kept" in app.bar.noticed)
        assert buffer.dirty and not buffer.read_only and "z" in buffer.text

    driven(op, act)


def test_a_link_to_itself(op: Path) -> None:
    """Saving where op.py became a link to itself writes the file again, or says why not."""

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        op.unlink()
        op.symlink_to(op)
        await until(pilot, lambda: buffer.gone)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not buffer.dirty or "cannot be written" in app.bar.noticed)
        assert buffer.dirty or op.read_text() == buffer.text

    driven(op, act)


def test_a_folder_that_was_made_again(op: Path) -> None:
    """Changes are noticed in a folder that was removed and made again, as a change of branch does."""
    folder = op.parent / "sub"
    folder.mkdir()
    inner = Path(shutil.move(op, folder / "softmax.py"))

    async def act(app: KforgeApp, pilot: Any) -> None:
        buffer = app.desk.editor.current
        before = buffer.text
        shutil.rmtree(folder)
        await until(pilot, lambda: buffer.gone)
        folder.mkdir()
        inner.write_text(before)
        await until(pilot, lambda: not buffer.gone)
        inner.write_text("later = 1\n")
        await until(pilot, lambda: buffer.text == "later = 1\n")

    driven(inner, act)


def test_wide_and_combining_characters(op: Path) -> None:
    """Wide, combining and tab characters keep each line in the width of the terminal."""
    op.write_text("漢字 = 1\n\tx = 'e\u0301' # tile[threadIdx.x] = v[/]\n" + "y" * 300_000 + "\n")

    async def act(app: KforgeApp, pilot: Any) -> None:
        await pilot.press("down", "end", "z", "pagedown", "end", "up")
        rows = app.screen._compositor.render_strips()
        assert {strip.cell_length for strip in rows} == {80} and "漢字 = 1" in on_screen(app)

    driven(op, act, size=(80, 24))


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe would hold the whole IDE up, a device never ends: neither is read, nor listed among the tasks."""
    make(tmp_path / "odd.py")
    (tmp_path / "task.py").write_text("class Model: ...\n")
    with pytest.raises(KforgeError, match=r"odd\.py is no file that can be read"):
        files.read(tmp_path / "odd.py")
    assert tasks_in(tmp_path) == [tmp_path / "task.py"]
