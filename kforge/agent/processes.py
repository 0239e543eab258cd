"""The warm parent of candidates' processes during a run: one at a time, a fresh one after a stop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.worker import Zygote


class Processes:
    """Thread-safe: a stop may come from another thread at any moment. zygote: one that is there already."""

    def __init__(self, zygote: Zygote | None = None) -> None:
        self._zygote = zygote
        self._lock = threading.RLock()

    def start(self) -> Zygote:
        """The parent, started; a fresh one where a stop has ended the last."""
        from kforge.worker import Zygote

        with self._lock:
            self.sweep()
            if self._zygote is None:
                self._zygote = Zygote()
            return self._zygote.start()

    def abort(self) -> None:
        """End it and all it has started, without waiting for them."""
        with self._lock:
            if self._zygote is not None:
                self._zygote.abort()

    def sweep(self) -> None:
        """After an abort: wait for the processes that it has ended."""
        with self._lock:
            zygote = self._zygote
            if zygote is not None and zygote.aborted:
                self._zygote = None
                zygote.close()

    def close(self) -> None:
        """End it and wait."""
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()
