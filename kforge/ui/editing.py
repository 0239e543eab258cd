"""What is asked of the text: save, find, figures, $EDITOR, copying."""

from __future__ import annotations

import os
import shlex
import subprocess

from textual import on
from textual.app import SuspendNotSupported

from kforge.errors import KforgeError
from kforge.ui.acting import Acting
from kforge.ui.clipboard import copy
from kforge.ui.editor import EditorPane
from kforge.ui.layout import EDITOR
from kforge.ui.text import one_line


class Editing(Acting):
    """Actions on the editor."""

    def action_save(self) -> None:
        """Write the file that is shown."""
        try:
            buffer = self.desk.editor.save()
        except KforgeError as error:
            self.say_error(error)
            return
        if buffer is not None:
            self.bar.notice(f"saved {buffer.file}")

    @on(EditorPane.Saved)
    def _saved(self, event: EditorPane.Saved) -> None:
        path = event.buffer.path
        if path == self.op and not self.core.busy:
            self.run_worker(self._open(), group="open")
        elif self.settings.reverify and not self.core.busy and self._module() is not None:
            self.work(self._verify())

    def action_find(self) -> None:
        self.desk.show(EDITOR)
        self.desk.editor.open_bar("find")

    def action_find_next(self) -> None:
        self._found(self.desk.editor.find_next())

    def action_find_previous(self) -> None:
        self._found(self.desk.editor.find_next(forward=False))

    def _found(self, found: bool) -> None:
        if not found:
            self.bar.notice("not found")

    def action_go_to_line(self) -> None:
        self.desk.show(EDITOR)
        self.desk.editor.open_bar("line")

    def action_metric(self) -> None:
        """The next figure in the gutter."""
        buffer = self.desk.editor.current
        if buffer is None or not buffer.metrics:
            self.bar.notice("no figures yet: F9 profiles the candidate")
            return
        self.bar.notice(buffer.cycle_metric() or "no figure")

    def action_hot_line(self, step: int) -> None:
        """Along the lines by what they cost."""
        buffer = self.desk.editor.current
        if buffer is not None and not buffer.figures.values:
            measured = [b for b in self.desk.editor.buffers if b.figures.hottest]
            if measured:
                buffer = measured[0]
                self.desk.editor.activate(buffer)
        if buffer is None or not buffer.figures.values:
            self.bar.notice("no figures yet: F9 profiles the candidate")
        elif buffer.hot_line(step) is None:
            self.bar.notice(f"no line is hot: {buffer.figures.title}, all at their ideal; alt-m shows another figure")
        else:
            self.desk.show(EDITOR, focus=True)

    def action_reload(self) -> None:
        """The file as it is on disk; the edits here are one undo away."""
        buffer = self.desk.editor.current
        path = (buffer.path or buffer.of) if buffer is not None else None
        if buffer is None or path is None:
            return
        try:
            self.desk.editor.take_file(buffer, path)
        except KforgeError as error:
            self.say_error(error)

    def action_edit_outside(self) -> None:
        """$VISUAL or $EDITOR on the file that is shown, then back."""
        buffer = self.desk.editor.current
        program = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if buffer is None or buffer.path is None or not program:
            self.bar.notice("EDITOR is not set" if not program else "this file is read only", error=True)
            return
        try:
            if buffer.dirty:
                buffer.save()
            with self.suspend():
                subprocess.run([*shlex.split(program), str(buffer.path)], check=False)
            changed = self.desk.editor.changed_on_disk(buffer.path)
        except SuspendNotSupported:
            self.bar.notice("this terminal cannot be handed over", error=True)
        except (KforgeError, OSError, ValueError) as error:
            self.bar.notice(one_line(f"{program}: {error}"), error=True)
        else:
            if changed:
                self._saved(EditorPane.Saved(buffer))

    def action_copy_all(self) -> None:
        """The file to the clipboard."""
        if self.desk.editor.current is not None:
            self.copy_to_clipboard(self.desk.editor.current.text)

    def copy_to_clipboard(self, text: str) -> None:
        """Every copy of every widget: it works over ssh, and says what became of it."""
        self.bar.notice(copy(text, super().copy_to_clipboard))
