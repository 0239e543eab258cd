"""Files that change outside of the editor: watched by folder, gathered for a moment, told once in the app's thread.

An editor's atomic save arrives as a move (or as delete and create where the system is polled): all of them count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.events import FileSystemEventHandler
    from watchdog.observers.api import BaseObserver, ObservedWatch

SETTLE_S = 0.25  # without a further change before it is told


class Watch:
    """Calls `tell(paths)`, from a thread of its own, for files of `follow` that were written, moved or removed."""

    def __init__(self, tell: Callable[[set[Path]], None]) -> None:
        self._tell = tell
        self._files: frozenset[Path] = frozenset()
        self._lock = threading.Lock()  # of _changed, _timer and _open
        self._open = True  # somebody wants to be told
        self._observer: BaseObserver | None = None
        self._folders: dict[Path, ObservedWatch] = {}
        self._left: set[Path] = set()  # folders that were removed or moved away
        self._changed: set[Path] = set()
        self._timer: threading.Timer | None = None

    def follow(self, files: Iterable[Path]) -> None:
        """Watch these files from now on. A folder that is not there yet is not watched."""
        self._files = frozenset(path.absolute() for path in files)
        for folder in {path.parent for path in self._files if path.parent.is_dir()} - self._folders.keys():
            try:
                self._watch(folder)
            except OSError:  # the system has no watch left
                self._poll()
                self._watch(folder)

    def renew(self) -> None:
        """Watch folders that are there again, as after a change of branch; what was open in them counts as changed."""
        for folder in [folder for folder in tuple(self._left) if folder.is_dir()]:  # one may be added meanwhile
            self._left.discard(folder)
            if self._observer is not None:
                self._observer.unschedule(self._folders.pop(folder))
            self.follow(self._files)
            for path in self._files:
                if path.parent == folder:
                    self._seen(path)

    def _watch(self, folder: Path) -> None:
        from watchdog.observers import Observer

        if self._observer is None:
            self._observer = self._started(Observer())
        self._folders[folder] = self._observer.schedule(_handler(self._seen, self._gone), str(folder))

    def _poll(self) -> None:
        """Look at the files themselves, every second, at those watched so far too."""
        from watchdog.observers.polling import PollingObserver

        self._stop()
        self._observer = self._started(PollingObserver())
        for folder in list(self._folders):
            self._watch(folder)

    @staticmethod
    def _started(observer: BaseObserver) -> BaseObserver:
        observer.daemon = True
        observer.start()
        return observer

    def close(self) -> None:
        """End watching; nobody is told any more."""
        with self._lock:
            self._open = False
            if self._timer is not None:
                self._timer.cancel()
        self._stop()

    def _stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            if self._observer.is_alive():
                self._observer.join(2.0)
            self._observer = None

    def _gone(self, path: Path) -> None:
        if path in self._folders:
            self._left.add(path)

    def _seen(self, path: Path) -> None:
        if path not in self._files:
            return
        with self._lock:
            if not self._open:
                return
            self._changed.add(path)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(SETTLE_S, self._settled)
            self._timer.daemon = True
            self._timer.start()

    def _settled(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, set()
            wanted = self._open
        if changed and wanted:
            self._tell(changed)


def _handler(seen: Callable[[Path], None], gone: Callable[[Path], None]) -> FileSystemEventHandler:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            if event.event_type in ("modified", "created", "closed", "deleted"):
                seen(Path(str(event.src_path)))
            elif event.event_type == "moved":
                seen(Path(str(event.src_path)))
                seen(Path(str(event.dest_path)))
            if event.event_type in ("deleted", "moved"):
                gone(Path(str(event.src_path)))

    return Handler()
