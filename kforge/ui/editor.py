"""The editor pane: op.py, the candidate's module and its kernel sources in tabs, a bar to search and go to lines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import ContentSwitcher, Input, Static, Tab, Tabs, TextArea
from textual.widgets._tabs import Underline

from kforge.errors import KforgeError
from kforge.ui import files
from kforge.ui.buffer import Buffer
from kforge.ui.diagnostics import Diagnostic, by_file
from kforge.ui.text import one_line, plain


class FileTabs(Tabs):
    """Tabs that may come and go while the app is being left: its underline is gone first, and then it is quiet."""

    def _highlight_active(self, animate: bool = True) -> None:
        if self.query(Underline):
            super()._highlight_active(animate)

    def watch_active(self, previously_active: str, active: str) -> None:
        """As Textual does."""
        if self.query(Underline):
            super().watch_active(previously_active, active)

    def validate_active(self, active: str) -> str:
        """None of them, when they are gone already."""
        return super().validate_active(active) if self.query(Underline) else ""


class FindInput(Input):
    """The bar's line. Enter and escape are for it, whatever has the focus when a binding would be looked for."""

    async def _on_key(self, event: events.Key) -> None:
        pane = self.parent
        if event.key in ("enter", "escape") and isinstance(pane, EditorPane):
            event.stop()
            event.prevent_default()
            if event.key == "enter":
                pane.submitted(self.value)
            else:
                pane.close_bar()


class EditorPane(Vertical):
    """Buffers behind tabs. Names are file names: op.py, a candidate's module and sources never share one."""

    DEFAULT_CSS = """
    EditorPane { height: 1fr; }
    EditorPane Tabs { height: 2; }
    EditorPane ContentSwitcher { height: 1fr; }
    EditorPane Buffer, EditorPane Buffer:focus { height: 1fr; border: none; padding: 0;
                                                       scrollbar-size-horizontal: 0; }
    EditorPane #find { display: none; height: 1; border: none; padding: 0 1; }
    EditorPane #line { height: 1; color: $text-muted; padding: 0 1; }
    """

    class Saved(Message):
        """A buffer was written to disk."""

        def __init__(self, buffer: Buffer) -> None:
            super().__init__()
            self.buffer = buffer

    def __init__(self, *, vim: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._vim = vim
        self._made = 0
        self._opening = asyncio.Lock()
        self._finding = ""  # "find" or "line": what the bar is for
        self._words = ""

    def compose(self) -> ComposeResult:
        """Tabs, the buffers, the bar, a line on where the cursor is."""
        yield FileTabs()
        yield ContentSwitcher()
        yield FindInput(id="find", placeholder="find")
        yield Static(id="line")

    # buffers

    @property
    def buffers(self) -> list[Buffer]:
        """In the order of their tabs."""
        found = {buffer.id: buffer for buffer in self.query_one(ContentSwitcher).query(Buffer)}
        order = [str(tab.id).removeprefix("tab-") for tab in self.query_one(Tabs).query(Tab)]
        return [found[name] for name in order if name in found]

    @property
    def current(self) -> Buffer | None:
        """The buffer that is shown."""
        name = self.query_one(ContentSwitcher).current
        return next((b for b in self.buffers if b.id == name), None)

    def buffer(self, name: str) -> Buffer | None:
        """By file name."""
        return next((b for b in self.buffers if b.file == name), None)

    async def open(self, path: Path, *, show: bool = True) -> Buffer:
        """The file in a tab. KforgeError where it cannot be read."""
        text, exact = files.read(path)
        return await self.show(path.name, text, path=path.absolute(), exact=exact, show=show)

    async def show(
        self, name: str, text: str, *, path: Path | None = None, exact: bool = True, show: bool = True
    ) -> Buffer:
        """A text in the tab of that name; edits that are not saved are kept, and the tab says so.

        Of a huge text an excerpt is shown, read only; so is what is not `exact`: written back it would be another one.
        """
        text, why = files.excerpt(text)
        async with self._opening:  # two that open one name at once would make two tabs
            buffer = await self._show(name, text, path if exact and not why else None, show)
        if buffer.path is None and (buffer.why, buffer.of) != (why, path):
            buffer.why, buffer.of = why, path
            self._tell()
        return buffer

    async def _show(self, name: str, text: str, path: Path | None, show: bool) -> Buffer:
        buffer = self.buffer(name)
        if buffer is None:
            self._made += 1
            buffer = Buffer(name, path, text, vim=self._vim)
            buffer.id = f"buffer-{self._made}"
            await self.query_one(ContentSwitcher).add_content(buffer, set_current=False)
            if not self.query(Underline):  # the app is being left
                return buffer
            await self.query_one(Tabs).add_tab(Tab(plain(name), id=f"tab-{buffer.id}"))
        elif path is None and buffer.path is not None:
            pass  # a file that can be edited is not hidden by what the store has
        elif buffer.dirty and path != buffer.path:
            buffer.other = str(path or "the store")
        elif buffer.dirty:
            buffer.conflict = text != buffer.disk
        elif not buffer.dirty or path is not None:
            buffer.path, buffer.read_only = path, path is None
            buffer.take_text(text)
        if show:
            self.activate(buffer)
        self._label(buffer)
        return buffer

    async def close(self, name: str) -> None:
        """Remove a tab."""
        buffer = self.buffer(name)
        if buffer is not None:
            await self.query_one(Tabs).remove_tab(f"tab-{buffer.id}")
            await buffer.remove()

    def activate(self, buffer: Buffer) -> None:
        """Show a buffer's tab."""
        self.query_one(Tabs).active = f"tab-{buffer.id}"
        self.query_one(ContentSwitcher).current = buffer.id

    def cycle(self) -> None:
        """Show the next tab."""
        buffers = self.buffers
        if self.current in buffers:
            self.activate(buffers[(buffers.index(self.current) + 1) % len(buffers)])

    def focus_text(self) -> None:
        """Put the focus into the text that is shown."""
        if self.current is not None:
            self.screen.set_focus(self.current)

    def save(self) -> Buffer | None:
        """Write what is shown. KforgeError where it cannot be written."""
        buffer = self.current
        if buffer is not None:
            try:
                buffer.save()
            finally:
                self._label(buffer)
                self._tell()
            self.post_message(self.Saved(buffer))
        return buffer

    @property
    def unsaved(self) -> list[Buffer]:
        """Buffers with edits that are on no disk."""
        return [buffer for buffer in self.buffers if buffer.dirty]

    def take_file(self, buffer: Buffer, path: Path) -> None:
        """The file as it is on disk now, read only where it cannot be edited here. KforgeError: it cannot be read."""
        text, exact = files.read(path)
        shown, why = files.excerpt(text)
        if buffer.dirty and (why or not exact):  # edits cannot be brought back into what is read only
            raise KforgeError(f"{path.name} cannot be edited as it is on disk now", "your edits are kept")
        buffer.belong(path, why, editable=exact and not why)
        buffer.take_text(shown)
        self._label(buffer)
        self._tell()

    def changed_on_disk(self, path: Path) -> bool:
        """A file changed outside. True where its buffer took the text; False for none, the same text or own edits.

        KforgeError where it cannot be read.
        """
        text, exact = files.read(path)
        buffer = next((b for b in self.buffers if path in (b.path, b.of)), None)
        if buffer is not None and not buffer.dirty and (buffer.of or not exact or files.excerpt(text)[1]):
            self.take_file(buffer, path)
            return True
        if buffer is None or (text == buffer.disk and not buffer.gone and not buffer.conflict):
            return False
        if text in (buffer.disk, buffer.text) or (buffer.gone and buffer.text == buffer.saved):
            buffer.gone = buffer.conflict = False  # it is there again, or as it was
        if buffer.dirty and text != buffer.text:
            buffer.conflict = text != buffer.disk
            self._label(buffer)
            self._tell()
            return False
        if text == buffer.disk:
            self._label(buffer)
            return False
        buffer.take_text(text)
        self._label(buffer)
        return True

    def removed_on_disk(self, path: Path) -> bool:
        """A file is gone: its text is kept, as an edit that is not saved. False for a file that is not open."""
        buffer = next((b for b in self.buffers if b.path == path), None)
        if buffer is None or buffer.gone:
            return False
        buffer.gone = True
        self._label(buffer)
        self._tell()
        return True

    # what is known of the lines

    def take_facts(self, lines: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        """A profile's figures by file. texts: the sources that were measured."""
        for buffer in self._showing(texts):
            if buffer.file in lines:
                buffer.measured(texts[buffer.file])
                buffer.take_facts(lines[buffer.file])
        self._tell()

    def take_diagnostics(self, found: Iterable[Diagnostic], texts: Mapping[str, str]) -> None:
        """Marks by file, of the sources that were judged; files without one lose theirs."""
        files = by_file(found)
        for buffer in self._showing(texts):
            buffer.measured(texts[buffer.file])
            buffer.take_diagnostics(files.get(buffer.file, ()))
        self._tell()

    def _showing(self, texts: Mapping[str, str]) -> list[Buffer]:
        """Buffers that show these texts, edited or not; one of another candidate has its own lines."""
        return [b for b in self.buffers if b.file in texts and texts[b.file] in (b.text, b.saved)]

    # the bar

    def open_bar(self, what: str) -> None:
        """Ask for words to find ("find") or a line to go to ("line")."""
        self._finding = what
        bar = self.query_one("#find", Input)
        bar.placeholder = "find (enter: next, shift+tab: previous)" if what == "find" else "line"
        bar.value = self._words if what == "find" else ""
        bar.display = True  # by a class it could not take the focus yet
        self.screen.set_focus(bar)  # not later: the next key is meant for it

    def close_bar(self) -> bool:
        """Put the bar away; False where it was not open."""
        bar = self.query_one("#find", Input)
        if not bar.display:
            return False
        here = self.screen.focused is bar  # it may have gone on, while this key was on its way
        bar.display = False
        if here:
            self.focus_text()
        return True

    def find_next(self, *, forward: bool = True) -> bool:
        """The next occurrence of what was looked for last."""
        return self.current is not None and self.current.find(self._words, forward=forward)

    def submitted(self, words: str) -> None:
        """Look for the words, or go to the line."""
        if self._finding == "line":
            if self.current is not None and words.strip().isdecimal():  # a superscript is a digit, and no number
                self.current.go_to(int(words.strip()[:9]))
            self.close_bar()
            return
        self._words = words
        if not self.find_next():
            self._tell(f"not found: {one_line(self._words, 40)}")

    @on(Tabs.TabActivated)
    def _activated(self, event: Tabs.TabActivated) -> None:
        event.stop()
        name = str(event.tab.id).removeprefix("tab-")
        self.query_one(ContentSwitcher).current = name
        self._tell()

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        if isinstance(event.text_area, Buffer):
            self._label(event.text_area)

    @on(TextArea.SelectionChanged)
    def _moved(self) -> None:
        self._tell()

    def _label(self, buffer: Buffer) -> None:
        sign = "!" if buffer.conflict or buffer.gone else "*" if buffer.dirty else ""
        label = plain(f"{buffer.file}{sign}")
        for tab in self.query_one(Tabs).query(Tab):
            if tab.id == f"tab-{buffer.id}" and tab.label != label:
                tab.label = label

    def _tell(self, words: str = "") -> None:
        buffer = self.current
        if buffer is None:
            return
        row, column = buffer.cursor_location
        parts = [f"{row + 1}:{column + 1}"]
        if buffer.vim is not None:
            parts.append(buffer.vim.shown)
        if buffer.path is None:
            parts.append(f"read only, {buffer.why}" if buffer.why else "read only")
        if buffer.other and buffer.dirty:
            parts.append(f"your edits are kept; another version is in {buffer.other}")
        if buffer.gone:
            parts.append("removed from disk: saving writes it again")
        elif buffer.conflict:
            parts.append("changed on disk: saving twice overwrites it, alt-r takes it")
        if buffer.figures.values:
            parts.append(buffer.figures.title + (" (before your edits)" if buffer.stale else ""))
        parts.append(words or buffer.hint)
        self.query_one("#line", Static).update(plain(one_line("  ".join(p for p in parts if p))), layout=False)
