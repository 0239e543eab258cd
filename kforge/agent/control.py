"""What the developer says to a run while it works: stop, and steers. Thread-safe; imports nothing heavy."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kforge.errors import Interrupted, UsageError

WHEN = ("now", "queued")
MOST = 50_000  # characters of a steer; a longer one would take the window of many a model
Told = Callable[["Steer", str], None]


@dataclass(frozen=True)
class Steer:
    """A message of the developer. when: "now" is read at the next moment possible, "queued" between attempts."""

    id: int
    text: str
    when: str = "now"


class Control:
    """Shared by who steers (the UI, a signal) and who works (search, tools, evaluations).

    on_steer(steer, state) is called with received, taken, edited or dropped, in the order in which that happened: the
    log that it writes is what a resumed run goes by. It must not wait for a thread that steers.
    """

    def __init__(self, on_steer: Told | None = None) -> None:
        self._lock = threading.RLock()  # of stopping
        self._steering = threading.RLock()  # of the steers: from a change until it is told
        self._stopped = threading.Event()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._keys = itertools.count()
        self._last = 0  # id of a steer
        self._pending: tuple[Steer, ...] = ()  # replaced as a whole: who reads it waits for nobody
        self.on_steer = on_steer

    # stopping

    @property
    def stopped(self) -> bool:
        """Whether stop was asked for."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End the run: every registered callback is called at once, in this thread. A second call does nothing."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            callback()

    def reset(self) -> None:
        """Work may begin again after a stop (the IDE's next run in the same process)."""
        self._stopped.clear()

    def check(self) -> None:
        """Interrupted if stop was asked for."""
        if self._stopped.is_set():
            raise Interrupted("stopped", "`kforge resume` continues the run")

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until a stop; Interrupted then."""
        self._stopped.wait(seconds)
        self.check()

    def on_stop(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when a stop comes, or now if it has come; returns what takes the registration back."""
        with self._lock:
            key = next(self._keys)
            self._callbacks[key] = callback
            late = self._stopped.is_set()
        if late:
            callback()

        def forget() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return forget

    # steering

    def steer(self, text: str, when: str = "now") -> Steer:
        """A message for the model and for the standing rules. UsageError for an empty one or an unknown `when`."""
        if when not in WHEN:
            raise UsageError(f"a steer is for {' or '.join(WHEN)}, not {when!r}")
        if not text.strip():
            raise UsageError("a steer needs words")
        _check_length(text)
        with self._steering:
            self._last += 1
            steer = Steer(self._last, text.strip(), when)
            self._pending = (*self._pending, steer)
            self._tell(steer, "received")
        return steer

    def edit(self, id: int, text: str) -> Steer:
        """Other words for a steer that was not taken yet. UsageError where it was, or never existed."""
        if not text.strip():
            raise UsageError("a steer needs words", "drop it instead")
        _check_length(text)
        with self._steering:
            old = self._waiting(id)
            steer = replace(old, text=text.strip())
            self._pending = tuple(steer if other is old else other for other in self._pending)
            self._tell(steer, "edited")
        return steer

    def drop(self, id: int) -> Steer:
        """Take a steer back that was not taken yet. UsageError where it was, or never existed."""
        with self._steering:
            steer = self._waiting(id)
            self._pending = tuple(other for other in self._pending if other is not steer)
            self._tell(steer, "dropped")
        return steer

    def take(self, queued: bool = False) -> list[Steer]:
        """The steers that are due, in order, each handed out once. queued: between attempts, the queued ones too."""
        with self._steering:
            taken = [steer for steer in self._pending if queued or steer.when == "now"]
            self._pending = tuple(steer for steer in self._pending if steer not in taken)
            for steer in taken:
                self._tell(steer, "taken")
        return taken

    @property
    def pending(self) -> tuple[Steer, ...]:
        """The steers that were not taken yet, in order."""
        return self._pending

    def restore(self, steers: Sequence[Steer], last: int) -> None:
        """The steers that a resumed run had not taken, and the last id it gave; nobody is told, the log knows them."""
        with self._steering:
            self._pending = (*steers, *self._pending)
            self._last = max(self._last, last)

    def _waiting(self, id: int) -> Steer:
        found = next((steer for steer in self._pending if steer.id == id), None)
        if found is None:
            raise UsageError(f"steer {id} is not waiting", "it was taken or dropped already")
        return found

    def _tell(self, steer: Steer, state: str) -> None:
        if self.on_steer is not None:
            self.on_steer(steer, state)


def _check_length(text: str) -> None:
    if len(text) > MOST:
        raise UsageError(f"a steer has at most {MOST} characters, this one {len(text)}", "say it shorter")
